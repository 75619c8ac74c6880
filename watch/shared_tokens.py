"""This module finds out, for each request that is admitted, why the tokens that it shares with
earlier requests were hit or not. It looks at admissions and at lost entries of the cache only."""

from collections import Counter
from functools import partial
from typing import Any

from vllm.v1.core.kv_cache_utils import get_group_id
from vllm.v1.request import RequestStatus

from kvproof.invariants import why_not_hit
from kvproof.invariants.why_not_hit import Earlier, Lost, PromptLookup, Shared
from kvproof.model.because import choice
from kvproof.model.events import Preempt
from kvproof.model.hit_rows import HitRow
from kvproof.watch.event_notes import CacheLookup
from kvproof.watch.notes import EngineNotes
from kvproof.watch.parts.admissions import FoundInCache, found_in_cache
from kvproof.watch.slices import WatchedRequest
from kvproof.watch.tokens import Tokens

REQUESTS_MAX = 256
TOKENS_MAX = 1 << 21
"""How many earlier requests are known, and their tokens (16 MiB of hashes), at most."""

LOST_MAX = 1 << 16
"""The number of lost entries of the cache that are known, at most: the last ones."""

TAKEN = choice("they were evicted by a request that gave the block back in the same step")


class SharedTokens:
    """What the requests of one engine share. `found` has the number of tokens of each row so far,
    by its label."""

    def __init__(self, notes: EngineNotes) -> None:
        self.notes = notes
        self.cfg = notes.cfg
        self.found: Counter[str] = Counter()
        self.earlier: dict[str, Earlier] = {}
        self.lost: dict[Any, Lost] = {}
        self.full = next((i for i, g in enumerate(self.cfg.groups) if g.kind == "full"), None)
        groups = range(len(self.cfg.groups))
        self.evicted = [why_not_hit.evicted_by(self.cfg, group) for group in groups]

    def look(self) -> None:
        """Look at the event that is over."""
        event = self.notes.event
        if event.unmapped:
            self._note_lost()
        if event.lookups and self.cfg.prefix_caching:
            for lookup in event.lookups:
                self._admitted(lookup)
            self._forget()
        for each in event.choices:
            if isinstance(each, Preempt) and each.request in self.notes.requests:
                self._computed(each.request, self.notes.requests[each.request])
        for name, watched in self.notes.gone.items():
            self._computed(name, watched)
            if name in self.earlier and watched.counted:
                self.earlier[name].ended = True

    def reset(self) -> None:
        """Note that the cache was reset."""
        self.lost.clear()
        for each in self.earlier.values():
            each.reset = True

    # What was there before.

    def _computed(self, name: str, watched: WatchedRequest) -> None:
        """Note how much of a request is computed. The tokens of a load are not before its end, and
        those of a request that was preempted are known from what it has written."""
        earlier = self.earlier.get(name)
        if earlier is None or not watched.counted:
            return
        live, earlier.tokens = watched.live, watched.tokens
        computed = watched.written
        if live.status is not RequestStatus.WAITING_FOR_REMOTE_KVS:
            computed = max(computed, live.num_computed_tokens)
        computed = min(computed, len(watched.tokens))
        earlier.compute(self.cfg, computed, live.num_prompt_tokens)

    def _forget(self) -> None:
        """Forget the requests that came first where too many are known."""
        tokens = sum(len(each.tokens) for each in self.earlier.values())
        while len(self.earlier) > REQUESTS_MAX or (tokens > TOKENS_MAX and len(self.earlier) > 1):
            tokens -= len(self.earlier.pop(next(iter(self.earlier))).tokens)

    def _note_lost(self) -> None:
        for key, number in self.notes.event.unmapped:
            self.lost.pop(key, None)
            self.lost[key] = self._why_lost(get_group_id(key), number)
        while len(self.lost) > LOST_MAX:
            del self.lost[next(iter(self.lost))]

    def _why_lost(self, group: int, number: int) -> Lost:
        event = self.notes.event
        if number in event.takers:
            return self.evicted[event.takers[number]]
        if number in event.fresh:
            return Lost(TAKEN)
        if event.what == "evict_blocks":
            return Lost(why_not_hit.ON_DEMAND)
        if event.invalid:
            return Lost(why_not_hit.LOAD_FAILED)
        if any(isinstance(each, Preempt) for each in event.choices):
            return Lost(why_not_hit.PREEMPTED)
        return why_not_hit.lost_otherwise(self.cfg, group)

    # An admission.

    def _admitted(self, lookup: CacheLookup) -> None:
        """Note the rows of a request at its first admission. From then on it is an earlier one."""
        watched = lookup.watched
        name = watched.live.request_id
        if not watched.counted:
            for row in why_not_hit.rows(self.cfg, self._facts(lookup)):
                self._add(name, row)
            watched.counted = True
            self.earlier.pop(name, None)
        if name not in self.earlier or self.earlier[name].reset:
            self.earlier[name] = Earlier(watched.tokens)
        self._computed(name, watched)

    def _add(self, name: str, row: HitRow) -> None:
        if row.tokens:
            self.found[row.label] += row.tokens
            self.notes.history.row(name, row)

    def _facts(self, lookup: CacheLookup) -> PromptLookup:
        live = lookup.watched.live
        found = found_in_cache(self.notes, lookup)
        shared = self._shared(lookup.watched.tokens).at_least(self._proven(found, lookup.hit))
        return PromptLookup(
            known=live.num_tokens,
            shared=shared,
            hit=lookup.hit,
            loaded=lookup.external,
            cached=found.has,
            lost=partial(self._lost, found),
            loader=type(self.notes.scheduler.connector).__name__,
            reads=not getattr(live, "skip_reading_prefix_cache", False),
        )

    def _shared(self, tokens: Tokens) -> Shared:
        """Return what is shared with the earlier requests that are known."""
        shared, least, hashes = Shared(), 0, tokens.hashes
        for name, each in self.earlier.items():
            theirs = each.tokens.hashes  # most requests share nothing more
            if not least < min(len(theirs), len(hashes)) or theirs[least] != hashes[least]:
                continue
            if name in self.notes.requests:
                self._computed(name, self.notes.requests[name])
            shared = shared.more(each, tokens.in_common(each.tokens, least))
            least = min(shared)
        return shared

    def _proven(self, found: FoundInCache, hit: int) -> int:
        """Return the number of tokens of which the cache itself shows that they were computed
        since the last reset, by requests that may be forgotten: the blocks of full attention that
        it has or had."""
        if self.full is None:
            return hit
        size, ahead = self.cfg.groups[self.full].block_size, self.cfg.hash_lookahead_tokens
        end = hit // size * size
        while (key := found.key(self.full, end + size + ahead)) is not None and (
            key in self.lost or found.block_of(key) is not None
        ):
            end += size
        return max(hit, end)

    def _lost(self, found: FoundInCache, group: int, end: int) -> Lost | None:
        return self.lost.get(found.key(group, end))
