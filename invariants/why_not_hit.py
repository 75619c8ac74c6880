"""Why a prefix cache does not hit: of the tokens that a request shares with earlier requests of its
engine, how many were hit, and why the others were not.

Each shared token is in exactly one row. First come limits on the length of a hit, one after the
other: each row has the tokens between one limit and the next. What is left between the last limit
and the hit is looked up in the cache, group by group: an entry that a hit needs was lost, or was
never there, or, if it is there, nothing explains why it was not hit.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kvproof.invariants.hits import (
    END_OF_PROMPT,
    SPARSE_RETENTION,
    STATE_AT_CHUNK_END,
    WINDOW_PASSED_BY,
    alike_after_hit,
    lacking,
)
from kvproof.model.because import Excuse, choice, release
from kvproof.model.config import EngineConfig
from kvproof.model.hit_rows import NOT_EXPLAINED, HitRow

NOT_READ = choice("their request asks for no hit")
RESET = choice("the cache was reset since")
NOT_COMPUTED = choice("they were not computed yet when the cache was looked up")
LAST_TOKEN = choice("the last token of a prompt is always computed, with the block it is in")
DRAFTER = choice("a drafter needs the block after a hit to match too")
LAST_OUTPUT = release("what came with the last output of a request that ended is not cached")
NO_HASH_ENDS = "no prefix with a hash, one every {unit} tokens, was full"
NO_BLOCK = "no block of {size} tokens was full"
NO_UNIT = "no unit of {unit} tokens, which blocks of {size} and of other groups divide, was full"
ON_DEMAND = choice("they were evicted because somebody asked for it (evict_blocks)")
LOAD_FAILED = choice("a load failed, and they are computed again")
PREEMPTED = choice("their request was preempted, and may not have computed them")
GOES_ON = choice("the block went on, and holds a later state or a longer prefix")


class Lost(NamedTuple):
    """Why an entry of the cache was lost; None where nothing explains it."""

    excuse: Excuse | None


class Earlier:
    """An earlier request of an engine: its `tokens`, how many of them were computed, and how many
    of these before its last output. `reset` says that the cache was reset since, and `ended` that
    it computes no more."""

    __slots__ = ("computed", "ended", "reset", "settled", "tokens")

    def __init__(self, tokens: Any) -> None:
        self.tokens = tokens
        self.computed = self.settled = 0
        self.reset = self.ended = False

    def compute(self, cfg: EngineConfig, computed: int, prompt: int) -> None:
        """Note that so many tokens are computed, of a prompt of so many."""
        slack = cfg.drafts + (1 if cfg.overlaps else 0)
        self.computed = max(self.computed, computed)
        self.settled = max(self.settled, min(computed, prompt), computed - slack)


class Shared(NamedTuple):
    """How many tokens a request shares with what earlier requests have computed or will compute,
    with those since the last reset of the cache, with what was computed of these, and with what was
    computed of these before their last output."""

    tokens: int = 0
    since_reset: int = 0
    computed: int = 0
    settled: int = 0

    def more(self, earlier: Earlier, in_common: int) -> "Shared":
        """What is shared, with one more request that has so many tokens in common."""
        common = min(in_common, earlier.computed) if earlier.ended else in_common
        since = 0 if earlier.reset else common
        numbers = common, since, min(since, earlier.computed), min(since, earlier.settled)
        return Shared(*map(max, self, numbers))

    def at_least(self, tokens: int) -> "Shared":
        """What is shared, if the cache shows that so many tokens were computed since its reset."""
        return Shared(*(max(each, tokens) for each in self))


class PromptLookup(NamedTuple):
    """What is known of a request when it is admitted, in tokens from its first.

    It has `known` tokens, of which earlier requests have those that are `shared`. It hits `hit`,
    and the connector `loader` loads `loaded` more. With `reads` false it asks for no hit.
    `cached(group, end)` says whether the prefix of `end` tokens was cached in a group at the
    look-up, and `lost(group, end)` how its entry was lost, None where the engine is not known to
    have had it.
    """

    known: int
    shared: Shared
    hit: int
    loaded: int
    cached: Callable[[int, int], bool]
    lost: Callable[[int, int], Lost | None]
    loader: str = ""
    reads: bool = True


class Limit(NamedTuple):
    """A hit has at most `tokens` tokens, and why. `group` is the cache group that sets the limit,
    if it is one."""

    excuse: Excuse
    tokens: int
    group: int | None = None


def rows(cfg: EngineConfig, lookup: PromptLookup) -> Iterator[HitRow]:
    """The shared tokens of one request, each in one row."""
    left = max(lookup.shared.tokens, lookup.hit)
    served = min(lookup.hit + lookup.loaded, left)
    yield HitRow("hit", "", lookup.hit)
    yield HitRow("loaded", lookup.loader, served - lookup.hit)
    for limit in _limits(cfg, lookup):
        tokens = max(limit.tokens, served)
        if tokens < left:
            yield HitRow(limit.excuse.kind, limit.excuse.says, left - tokens, limit.group)
            left = tokens
    yield from _not_found(cfg, lookup, left, served)


def _limits(cfg: EngineConfig, lookup: PromptLookup) -> Iterator[Limit]:
    """What limits a hit, whatever is cached: the limits of all tokens first, and then those of
    whole blocks."""
    if not lookup.reads:
        yield Limit(NOT_READ, 0)
    yield Limit(RESET, lookup.shared.since_reset)
    yield Limit(NOT_COMPUTED, lookup.shared.computed)
    unit = 1
    for unit, size, group in _units(cfg, loads=lookup.loaded > 0):
        says = NO_HASH_ENDS if group is None else NO_BLOCK if size == unit else NO_UNIT
        told = says.format(unit=f"{unit:,}", size=f"{size:,}")
        yield Limit(choice(told), _whole(lookup.shared.computed, unit), group)
    yield Limit(LAST_TOKEN, _whole(min(lookup.shared.computed, lookup.known - 1), unit))
    after = alike_after_hit(cfg)
    yield Limit(DRAFTER, _whole(lookup.shared.computed - after, unit))
    yield Limit(LAST_OUTPUT, _whole(lookup.shared.settled - after, unit))


def _units(cfg: EngineConfig, *, loads: bool) -> Iterator[tuple[int, int, int | None]]:
    """The units in which a hit may end, the finer ones first: the unit, the block size, and the
    group that has it. Each group makes the unit a multiple of its blocks."""
    if cfg.partial_block_hits and not loads:
        yield cfg.hash_unit, cfg.hash_unit, None
        return
    unit = 1
    whole = [
        (g.block_size, index) for index, g in enumerate(cfg.groups) if g.attention or g.aligned
    ]
    for size, index in sorted(whole):
        unit = math.lcm(unit, size)
        yield unit, size, index


def _whole(tokens: int, unit: int) -> int:
    """The largest multiple of a unit in a number of tokens."""
    return max(tokens, 0) // unit * unit


def _not_found(cfg: EngineConfig, lookup: PromptLookup, left: int, served: int) -> Iterator[HitRow]:
    """Why the tokens between what was `served` and `left` were not hit: what the cache lacked for
    the longest hit that is left, then for the next shorter one, and so on."""
    unit = max((unit for unit, _, _ in _units(cfg, loads=lookup.loaded > 0)), default=1)
    while left > served:
        group, end, excuse = _lack(cfg, lookup, left)
        shorter = served if group is None else max(_whole(left - 1, unit), served)
        if group is not None and cfg.groups[group].kind == "full":
            # without this block no hit goes beyond its first token
            size = cfg.groups[group].block_size
            before = (end - cfg.hash_lookahead_tokens - 1) // size * size
            shorter = max(min(shorter, _whole(before, unit)), served)
        yield _row(excuse, left - shorter, group)
        left = shorter


def _row(excuse: Excuse | None, tokens: int, group: int | None) -> HitRow:
    if excuse is None:
        return HitRow(NOT_EXPLAINED, "", tokens, group)
    return HitRow(excuse.kind, excuse.says, tokens, group)


def _lack(
    cfg: EngineConfig, lookup: PromptLookup, hit: int
) -> tuple[int | None, int, Excuse | None]:
    """What the cache lacked for a hit of this length: the group, the end of the prefix, and why; of
    several the first that something explains. No group, where it lacked nothing."""
    found: tuple[int | None, int, Excuse | None] = (None, 0, None)
    for group, end in lacking(cfg, lookup.cached, lookup.known, hit, lookup.hit):
        lost = lookup.lost(group, end)
        excuse = _why_never(cfg, group, end) if lost is None else lost.excuse
        if excuse is not None:
            return group, end, excuse
        if found[0] is None:
            found = group, end, None
    return found


def _why_never(cfg: EngineConfig, index: int, end: int) -> Excuse | None:
    """Why a prefix that was computed was never cached in a group, as far as the engine is known.
    Full attention keeps each whole block."""
    group = cfg.groups[index]
    if group.kind != "full" and cfg.retention is not None:
        return SPARSE_RETENTION
    if group.kind == "mamba":
        return STATE_AT_CHUNK_END
    if group.kind == "window":
        return WINDOW_PASSED_BY
    inside = (end - cfg.hash_lookahead_tokens) % group.block_size
    return END_OF_PROMPT if inside else None


def evicted_by(cfg: EngineConfig, group: int) -> Lost:
    """How an entry is lost when a block of a group is taken in the place of its block."""
    each = cfg.groups[group]
    size = f"{each.block_size:,}"
    return Lost(
        choice(f"they were evicted (by whom: group {group}, {each.kind}, blocks of {size} tokens)")
    )


def lost_otherwise(cfg: EngineConfig, group: int) -> Lost:
    """How an entry of a group is lost whose block nobody took: a block of full attention keeps its
    key, unless the block is cached under a longer prefix."""
    goes_on = cfg.partial_block_hits or not cfg.groups[group].attention
    return Lost(GOES_ON if goes_on else None)
