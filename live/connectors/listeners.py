"""What is observed of one engine beside its steps: the calls to the tiers of its store, the numbers
that it reports of prompts, the hashes in its KV events, and what its connector has open outside."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

from kvproof.live.fakes.replaced import found
from kvproof.live.fakes.store_client import StoreClient
from kvproof.live.observer.hooks import Before, around
from kvproof.live.observer.view import HashedTokens
from kvproof.model.config import EngineConfig
from kvproof.model.facts.connectors import (
    CacheStatistics,
    Closed,
    EventTokens,
    Fact,
    PromptReported,
    TierCalled,
    TierIdle,
    TierLoads,
    TierNotified,
    TokensLookedUp,
)

OFFLOADING = "vllm.v1.kv_offload."

KINDS = {
    OFFLOADING + "base:OffloadingManager": ("prepare_load", "prepare_store"),
    OFFLOADING + "tiering.base:SecondaryTierManager": ("submit_load", "submit_store", "touch"),
}
"""The classes of tiers, and what is submitted to each."""

ENDED = "on_request_finished"

HOMES = ("vllm.distributed.kv_transfer.", OFFLOADING)
"""Where the parts of vLLM's connectors are defined."""


class NotifiedTier:
    """The notices that a tier received: the requests that have started, and those that have ended.
    `starts` are all requests of whose start it was ever notified. vLLM's CPU tier below other tiers
    is notified of none."""

    def __init__(self, tier: Any) -> None:
        self.kind = type(tier).__name__
        self.begun: dict[str, None] = {}
        self.ended: set[str] = set()
        self.starts: set[str] = set()
        self.loaded: set[Any] = set()

    def loads(self, keys: Sequence[Any], *, unwanted: bool) -> TierLoads:
        """Take a load of these keys from the tier, perhaps for a request that wants none."""
        again = len(self.loaded.intersection(keys))
        self.loaded.update(keys)
        return TierLoads(len(keys), again, unwanted)

    def idle(self) -> TierIdle:
        """The requests of whose end the tier was not notified when the engine is idle."""
        return TierIdle(self.kind, len(self.ended), tuple(self.begun))

    def take(self, call: str, name: str) -> TierNotified | TierCalled | None:
        """Take a call for a request. Returns the fact about it, if it is no start."""
        if call == "on_new_request":
            self.ended.discard(name)
            self.starts.add(name)
            self.begun[name] = None
            return None
        if call != ENDED:
            return TierCalled(name, self.kind, call, name in self.ended)
        self.ended.add(name)
        self.begun.pop(name, None)
        return TierNotified(name, self.kind, name in self.starts, bool(self.starts))


def listen(
    connector: Any, facts: list[Fact], counts: Counter[str], want_none: Set[str]
) -> list[NotifiedTier]:
    """Record the calls to the tiers of a connector, and count what is loaded from them. Requests
    that want nothing of lower tiers are in `want_none`. Returns the notices that each tier receives
    from now on."""
    places = {found(place): calls for place, calls in KINDS.items()}
    kinds = {getattr(*place): calls for place, calls in places.items() if place is not None}
    noted = []
    for tier in _tiers(connector, tuple(kinds), set()):
        noted.append(NotifiedTier(tier))
        for kind, calls in kinds.items():
            # cannot be judged: older releases report no end
            if isinstance(tier, kind) and hasattr(tier, ENDED):
                for call in (*calls, ENDED, "on_new_request"):
                    around(tier, call, _noted(call, noted[-1], facts, counts, want_none))
    return noted


def _noted(
    call: str,
    known: NotifiedTier,
    facts: list[Fact],
    counts: Counter[str],
    want_none: Set[str],
) -> Before:
    def note(arguments: Sequence[Any], more: Mapping[str, Any]) -> None:
        # One argument is the context of the request, or a job that has it.
        given = (*arguments, *more.values())
        parts = [getattr(each, "req_context", each) for each in given]
        name = next(each.req_id for each in parts if hasattr(each, "req_id"))
        if (fact := known.take(call, name)) is not None:
            facts.append(fact)
        if call == "submit_load":
            keys = [key for each in given for key in getattr(each, "keys", ())]
            counts["blocks loaded from lower tiers"] += len(keys)
            facts.append(known.loads(keys, unwanted=name in want_none))

    return note


def _tiers(thing: Any, kinds: tuple[type, ...], seen: set[int]) -> Iterator[Any]:
    """The tiers among the parts of a connector, and their parts."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, list | tuple):
        parts = thing
    else:
        if isinstance(thing, kinds):
            yield thing
        parts = list(getattr(thing, "__dict__", {}).values())
    for part in parts:
        own = isinstance(part, (list, tuple, *kinds))
        if own or type(part).__module__.startswith(HOMES):
            yield from _tiers(part, kinds, seen)


class Prompts:
    """The admissions of each request until its first output, as `(local, external)`: the numbers of
    tokens from each cache."""

    def __init__(self, prompts: Mapping[str, str], cfg: EngineConfig, caches: bool) -> None:
        self._prompts, self._cfg, self._caches = prompts, cfg, caches
        self._tokens: dict[str, int] = {}
        self._admitted: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._loading: set[str] = set()
        self._reported: set[str] = set()
        self._failed: set[str] = set()

    def promise(self, request: str, start: int, tokens: int) -> None:
        """Record that a request is admitted with a load."""
        self._admitted[request].append((start, tokens))
        self._loading.add(request)

    def begin(self, request: str, prompt_tokens: int, computed: int) -> None:
        """Record that a step has a request for the first time, or again after a preemption;
        `computed` tokens need no step any more. The prompt may be one token shorter than it was
        sent: with Mamba layers, NIXL leaves the last token to D."""
        self._tokens[request] = max(prompt_tokens, len(self._prompts[request]) - 1)
        if request not in self._loading:
            self._admitted[request].append((computed, 0))
        self._loading.discard(request)

    def fail(self, request: str) -> None:
        """Record that the load of a request has failed, so that it begins with fewer tokens than
        were promised."""
        self._failed.add(request)

    def reported(self, output: Any) -> Iterator[PromptReported]:
        """The numbers that the output of a request reports of its prompt. Only its first output has
        them; from July 2026 on they are an object of their own."""
        name = output.request_id
        if name in self._reported or name in self._failed:
            return
        tokens, cached = self._tokens.get(name, 0), None
        if (stats := getattr(output, "prefill_stats", None)) is not None:
            parts = stats.num_local_cached_tokens, stats.num_external_cached_tokens
            computed = stats.num_computed_tokens
            cached = getattr(stats, "num_cache_creation_tokens", None)
        elif hasattr(output, "num_external_computed_tokens"):
            cached, external = output.num_cached_tokens, output.num_external_computed_tokens
            parts, computed = (cached - external, external), tokens - cached
        else:
            return
        self._reported.add(name)
        if admitted := self._admitted.pop(name, []):
            cfg, known = self._cfg, tokens - self._cfg.hash_lookahead_tokens
            whole = (known - known % cfg.hit_unit) * self._caches
            other = len(cfg.groups) > 1 or bool(cfg.drafts) or cfg.partial_block_hits
            yield PromptReported(
                name, tokens, *parts, computed, tuple(admitted), cached, whole, other
            )


class LookUps:
    """The tokens that requests look up in the engine's prefix cache and in the connector's, until
    each is admitted, and what the statistics of both caches count of them."""

    def __init__(self, cfg: EngineConfig, caches: bool) -> None:
        self._cfg, self._caches = cfg, caches
        self._local: dict[str, int] = {}
        self._requests: Counter[str] = Counter()
        self._admitted: Counter[tuple[str, int]] = Counter()
        self._counted: Counter[tuple[str, int]] = Counter()

    def look_up(self, request: Any, hit: int) -> None:
        """Record that a request hits so many tokens, and that the connector is asked for more."""
        self._local[request.request_id] = hit

    def admit(self, request: Any, external: int) -> None:
        """Record that a request is admitted. One whose load is over looks up nothing again."""
        hit = self._local.pop(request.request_id, None)
        if hit is None:
            return
        tokens = request.num_tokens
        if self._caches and not request.skip_reading_prefix_cache:
            self._add(self._admitted, "engine's", tokens, hit)
        self._add(self._admitted, "connector's", tokens - hit, external)

    def count(self, where: str, stats: Any) -> None:
        """Add the statistics of a step. Preempted requests have numbers of their own."""
        self._requests[where] += stats.requests
        asked = stats.queries + getattr(stats, "preempted_queries", 0)
        self._add(self._counted, where, asked, stats.hits + getattr(stats, "preempted_hits", 0))

    def facts(self, arrived: int, failed: int) -> Iterator[CacheStatistics | TokensLookedUp]:
        """What both caches count and had, when the engine is idle: so many requests have arrived,
        and so many loads failed."""
        for where, count in self._requests.items():
            yield CacheStatistics(where, count, arrived, failed)
        states = any(not group.attention for group in self._cfg.groups)
        unlike = self._cfg.partial_block_hits or states
        for where in dict.fromkeys(where for where, _ in self._admitted):
            counted, admitted = (
                (numbers[where, 0], numbers[where, 1])
                for numbers in (self._counted, self._admitted)
            )
            yield TokensLookedUp(where, counted, admitted, unlike)

    @staticmethod
    def _add(numbers: Counter[tuple[str, int]], where: str, asked: int, hit: int) -> None:
        numbers[where, 0] += asked
        numbers[where, 1] += hit


def carried(event: Any, hashed: HashedTokens) -> Iterator[EventTokens]:
    """For each known hash of an event: the tokens that the event carries, and the prefix that the
    hash stands for."""
    size, tokens = event.block_size, event.token_ids or ()
    known = {maybe_convert_block_hash(value): covered for value, covered in hashed.known.items()}
    for at, name in enumerate(event.block_hashes):
        own, covered = tokens[at * size : (at + 1) * size], known.get(name)
        if own and covered is not None:
            yield EventTokens(_text(own), _text(covered[: len(covered) - hashed.ahead]))


def _text(tokens: Sequence[int]) -> str:
    return "".join(map(chr, tokens))


MAPPED = Path("/proc/self/maps")
"""The files that this process has mapped, on Linux."""

SHARED = "/dev/shm/"
GONE = " (deleted)"
"""The end of the line about a mapped file whose name was removed."""


def shared_memory() -> frozenset[str]:
    """The named files in shared memory that this process has mapped."""
    if not MAPPED.exists():
        return frozenset()
    lines = MAPPED.read_text("utf-8").splitlines()
    paths = (SHARED + line.partition(SHARED)[2] for line in lines if SHARED in line)
    return frozenset(path for path in paths if not path.endswith(GONE))


def names() -> frozenset[str]:
    """The files that exist in shared memory now, with their folders."""
    walk = os.walk(SHARED)
    return frozenset(os.path.join(folder, name) for folder, _, files in walk for name in files)


class Opened:
    """The resources that are opened from now on, until `note`."""

    def __init__(self) -> None:
        self._names, self._clients = names(), len(StoreClient.made)
        self.files: frozenset[str] = frozenset()
        self.clients: list[StoreClient] = []

    def note(self) -> None:
        """Record the resources that were opened. Those that are opened later belong to others."""
        new = names() - self._names  # reading what is mapped takes far longer
        self.files = frozenset(path for path in shared_memory() if path in new) if new else new
        self.clients = [each for each in StoreClient.made[self._clients :] if each.closes]

    def remove(self) -> None:
        """Remove the names of the files: their memory is freed when no process has it mapped any
        more."""
        for each in self.files:
            Path(each).unlink(missing_ok=True)

    def closed(self) -> Iterator[Closed]:
        """How many of the resources still exist or are still open, for each kind of which there are
        any."""
        yield from _each("files in shared memory", [Path(each).exists() for each in self.files])
        yield from _each("clients of a store", [each.is_open for each in self.clients])


def _each(what: str, still: list[bool]) -> Iterator[Closed]:
    if still:
        yield Closed(what, len(still), sum(still))
