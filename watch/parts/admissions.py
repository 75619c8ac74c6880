"""These parts show the requests that look up the prefix cache and are admitted, and prompts that
come again."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id

from kvproof.live import adapt
from kvproof.model.events import Admit, Schedule
from kvproof.model.ghost_state import Served
from kvproof.model.needs import Need
from kvproof.model.state import NULL, Cached, Lists
from kvproof.model.step import Admission, Effects
from kvproof.watch.event_notes import CacheLookup
from kvproof.watch.parts.part import Part, Question
from kvproof.watch.shown import Views
from kvproof.watch.slices import WatchedRequest
from kvproof.watch.tokens import Tokens

TOKENS_MAX = 8192
"""Prompts with more tokens after the hit that may be cached are not judged: all hits are tried."""

TOO_LONG = f"hits with more than {TOKENS_MAX} tokens after them that may be cached"

SERVED_MAX = 64
"""The number of prompts that are known to be served, at most."""


class Hits(Part):
    """The hit of each admission, with the part of the cache that its tokens name."""

    view = Views.HITS

    def hidden(self) -> Mapping[Need, str]:
        """Hide the blocks of a hit where it may end inside a block, because it then ends in a copy
        of it."""
        inside = "its prefix hits end inside a block"
        return {Need.HIT_BLOCKS: inside} if self.cfg.partial_block_hits else {}

    def questions(self) -> Iterator[Question]:
        """Ask about one admission after the other."""
        for lookup in self.seen.event.lookups:
            if not looks_up(self.cfg, lookup):
                continue
            cut, end, cached = found_in_cache(self.seen, lookup).result()
            if end - cut > TOKENS_MAX:
                self.seen.unjudged[TOO_LONG] += 1
                continue
            admission = admission_of(self.cfg.name, lookup, cut, end, cached)
            choice = Admit(
                admission.request, admission.hit, lookup.external, hit=self._hit(lookup, cut)
            )
            yield self.question(
                event=Schedule(self.cfg.name, (choice,)), effects=Effects(admissions=(admission,))
            )

    def _hit(self, lookup: CacheLookup, cut: int) -> Lists:
        """Return the blocks of a hit after the first `cut` tokens, by group. A block that the
        request took is null."""
        taken = self.seen.event.taken.get(lookup.watched.live.request_id, ())
        return tuple(
            tuple(
                NULL if block.block_id in taken else block.block_id
                for block in table[cut // size : -(-lookup.hit // size)]
            )
            for table, size in zip(lookup.watched.tables, self.slices.sizes, strict=True)
        )


def looks_up(cfg: Any, lookup: CacheLookup) -> bool:
    """Whether an admission looks up the cache."""
    return cfg.prefix_caching and not getattr(
        lookup.watched.live, "skip_reading_prefix_cache", False
    )


def admission_of(
    engine: str, lookup: CacheLookup, cut: int, end: int, cached: Cached, served: Any = ()
) -> Admission:
    """Make an admission without the first `cut` tokens."""
    watched = lookup.watched
    return Admission(
        engine,
        watched.live.request_id,
        watched.tokens.text(cut, end),
        "local",
        lookup.hit - cut,
        lookup.external,
        cached,
        served,
    )


def found_in_cache(seen: Any, lookup: CacheLookup) -> "FoundInCache":
    """Return what a request finds in the cache at its admission, which is found out once."""
    found: dict[str, FoundInCache] = seen.event.found
    name = lookup.watched.live.request_id
    if name not in found:
        found[name] = FoundInCache(seen, lookup)
    return found[name]


class FoundInCache:
    """Find what a request finds in the cache at its admission.

    Tokens at the beginning that are cached in each group of full attention, in the blocks that the
    request got, and that no window of a longer hit has, are left out, and so are tokens behind the
    first that such a group lacks.
    """

    def __init__(self, seen: Any, lookup: CacheLookup) -> None:
        self.cfg = seen.cfg
        self.had: dict[Any, int | None] = seen.event.had(lookup.since)
        self.map = seen.slices.pool.cached_block_hash_to_block
        self.unit = seen.slices.unit
        self.lookup = lookup
        self.known = lookup.watched.live.num_tokens
        self.whole = {
            size: adapt.hashes_for(lookup.watched.live.block_hashes, self.cfg.hash_block_size, size)
            for size in {self.cfg.hash_block_size, *(g.block_size for g in self.cfg.groups)}
        }

    def result(self) -> tuple[int, int, Cached]:
        """Return where the part begins and ends, in tokens, and the cache entries in it."""
        cut, end = self._bounds()
        return cut, end, self.entries(cut, end)

    def entries(self, cut: int, end: int) -> Cached:
        """Return the cache entries of a part, without the first `cut` tokens in their keys."""
        found: list[tuple[tuple[int, str], tuple[int, ...]]] = []
        tokens, ahead = self.lookup.watched.tokens, self.cfg.hash_lookahead_tokens
        for index, group in enumerate(self.cfg.groups):
            inside = self.cfg.hash_block_size if self.cfg.partial_block_hits else group.block_size
            for size in {group.block_size, inside}:
                for place in range(cut // size, min(end // size, len(self.whole[size]))):
                    block = self._block(index, size, place)
                    if block is not None:
                        prefix = tokens.text(cut, (place + 1) * size + ahead)
                        found.append(((index, prefix), (block,)))
        return tuple(found)

    def _bounds(self) -> tuple[int, int]:
        if self.cfg.partial_block_hits:
            return 0, self.known
        windows = max(group.window for group in self.cfg.groups)
        cut, end = max(self.lookup.hit - windows, 0), self.known
        for index, group in enumerate(self.cfg.groups):
            if group.kind == "full":
                size = group.block_size
                lacks = next(self._lacking(index, size), self.known // size)
                cut = min(cut, lacks * size, self._other(index, size) * size)
                end = min(end, ((lacks + 1) * size // self.unit + 2) * self.unit)
        return cut // self.unit * self.unit, end

    def _other(self, index: int, size: int) -> int:
        """Return the first place of the hit where the request does not have the block that is
        cached, and took none; or the number of its places."""
        table, hit = self.lookup.watched.tables[index], self.lookup.hit // size
        for place, block in enumerate(table[:hit]):
            if block.block_id != self._block(index, size, place) and not block.is_null:
                return place
        return hit

    def _lacking(self, index: int, size: int) -> Iterator[int]:
        """Return the places of blocks that are not cached."""
        for place in range(len(self.whole[size])):
            if self._block(index, size, place) is None:
                yield place

    def _block(self, index: int, size: int, place: int) -> int | None:
        """Return the block that was cached at a place, None where there was none."""
        return self.block_of(make_block_hash_with_group_id(self.whole[size][place], index))

    def block_of(self, key: Any) -> int | None:
        """Return the block that had a key at the look-up, None where there was none."""
        if key in self.had:
            return self.had[key]
        block = self.map.get_one_block(key)
        return None if block is None else int(block.block_id)

    def key(self, index: int, end: int) -> Any:
        """Return the key of the first `end` tokens in a group, None where they have none."""
        tokens = end - self.cfg.hash_lookahead_tokens
        own = self.cfg.groups[index].block_size
        size = self.cfg.hash_block_size if tokens % own else own
        if tokens <= 0 or tokens % size or tokens // size > len(self.whole[size]):
            return None
        return make_block_hash_with_group_id(self.whole[size][tokens // size - 1], index)

    def has(self, index: int, end: int) -> bool:
        """Whether the first `end` tokens were cached in a group at the look-up."""
        key = self.key(index, end)
        return key is not None and self.block_of(key) is not None


class Repeated(Part):
    """The hit of each admission, with served prompts that share more than the hit.

    A prompt counts as served from the step on that ends its prefill. When a cache entry is lost,
    all served prompts are forgotten: so the check asks less than it could.
    """

    view = Views.REPEATED

    def __init__(self, seen: Any) -> None:
        super().__init__(seen)
        self.served: deque[tuple[Tokens, int]] = deque(maxlen=SERVED_MAX)
        self.prefilling: dict[str, WatchedRequest] = {}
        self.everywhere = all(group.kind == "full" for group in self.cfg.groups)

    def hidden(self) -> Mapping[Need, str]:
        """Hide what this engine has beyond what the invariants know."""
        return self.seen.shape.hidden

    def questions(self) -> Iterator[Question]:
        """Ask about one admission after the other, if prompts were served before."""
        event = self.seen.event
        for lookup in event.lookups:
            in_time = event.lost is None or event.lost >= lookup.since
            if in_time and self.served and looks_up(self.cfg, lookup):
                yield from self._admitted(lookup)
        if event.lost is not None:
            self.served.clear()
            self.prefilling.clear()
        self._note(event.lookups)

    def _admitted(self, lookup: CacheLookup) -> Iterator[Question]:
        known, hit = lookup.watched.live.num_tokens, lookup.hit
        cut = 0 if self.cfg.partial_block_hits else hit // self.slices.unit * self.slices.unit
        if known - cut > TOKENS_MAX:
            self.seen.unjudged[TOO_LONG] += 1
            return
        served = tuple(
            Served(tokens.text(cut, end), 0)
            for tokens, end in self.served
            if end > hit and tokens.shares(lookup.watched.tokens, hit + 1)
        )
        cached: Cached = ()
        if served and not self.everywhere:  # a window may have been hit and not computed
            cached = found_in_cache(self.seen, lookup).entries(cut, known)
        admission = admission_of(self.cfg.name, lookup, cut, known, cached, served)
        yield self.question(effects=Effects(admissions=(admission,)))

    def _note(self, admitted: list[CacheLookup]) -> None:
        """Note the requests whose prefill has begun, and those whose prefill is over."""
        for lookup in admitted:
            live = lookup.watched.live
            if not getattr(live, "resumable", False) and (self.everywhere or not lookup.external):
                self.prefilling[live.request_id] = lookup.watched
        if self.seen.event.what != "update_from_output":
            return
        for name, watched in list(self.prefilling.items()):
            live = watched.live
            if live.num_output_tokens or live.is_finished():
                del self.prefilling[name]
                if live.num_output_tokens:
                    self.served.append((watched.tokens, live.num_prompt_tokens))
