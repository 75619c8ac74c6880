"""Blocks in the reference: whose they are, what is cached and hit, and how tables grow."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.model import group_needs
from kvproof.model.config import EngineConfig, Group
from kvproof.model.errors import NotAllowed
from kvproof.model.events import COUNT_MAX
from kvproof.model.kv_events import Cleared, Removed, Stored, replayed
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference.blocks import allocation, caching, groups, pool, prefix_hits
from kvproof.model.reference.blocks.kv_event_queue import report_spans
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.state import NULL, Death, Engine, initial
from tests.by_hand import (
    EAGLE,
    FULL,
    MAMBA,
    STATE,
    TOKENS,
    WIDE,
    WIDE_STATE,
    WINDOW,
    cached,
    config,
    pool_of,
    request,
    running,
    serving,
)

# The pool

AB, ABC, XY = (0, "ab"), (0, "abc"), (0, "xy")


def test_a_key_is_told_to_be_removed_with_its_last_block_only() -> None:
    engine = pool_of(4, cached={AB: (1, 3)}, reports=())
    engine = pool.forget_key(engine, AB, 1)
    assert (engine.blocks_for(AB), engine.reports) == ((3,), ())
    engine = pool.forget_key(engine, AB, 3)
    assert (engine.cached, engine.reports) == ((), (Removed(0, "ab"),))


def test_nothing_is_cached_in_the_null_block() -> None:
    engine = pool_of(4)
    assert pool.cache_block(config(), engine, AB, NULL) is engine


def test_what_was_cached_since_a_step_began_can_be_taken_back() -> None:
    begun = pool_of(5, cached={AB: 1})
    later = pool.register(pool.register(begun, ABC, 2), XY, 3)
    gone = request("abc", (1, 2, NULL), (4,))
    assert pool.forget_uncomputed(begun, later, gone).cached == ((AB, (1,)), (XY, (3,)))


USES = st.lists(st.tuples(st.sampled_from(["take", "cache", "hit", "release"]), st.integers(0, 9)))


def used(engine: Engine, what: str, number: int, held: list[int]) -> Engine:
    """The pool after one use of it. `held` has each block once for each reference."""
    cached = [block for _, blocks in engine.cached for block in blocks]
    if what == "take" and number <= len(engine.free):
        engine, taken = pool.take(engine, number)
        held += taken
    elif what == "cache" and held and not engine.blocks[held[number % len(held)]].keys:
        engine = pool.register(engine, (0, "ab"[: 1 + number % 2]), held[number % len(held)])
    elif what == "hit" and cached:
        engine = pool.touch(engine, [cached[number % len(cached)]])
        held.append(cached[number % len(cached)])
    elif what == "release" and held:
        engine = pool.release(engine, [held.pop(number % len(held))])
    return engine


@given(USES)
def test_every_block_is_free_once_or_in_use_and_the_map_and_the_blocks_agree(
    uses: list[tuple[str, int]],
) -> None:
    engine, held = pool_of(6), list[int]()
    for what, number in uses:
        engine = used(engine, what, number, held)
        assert [block.refs for block in engine.blocks] == [held.count(block) for block in range(6)]
        assert sorted({*engine.free, *held}) == [1, 2, 3, 4, 5]
        assert len(engine.free) + len(set(held)) == 5
        mapped = {(key, block) for key, blocks in engine.cached for block in blocks}
        assert mapped == {(k, n) for n, b in enumerate(engine.blocks) for k in b.keys}


@given(st.permutations([1, 2, 3, 4, 5]))
def test_the_block_that_was_released_first_is_evicted_first(order: list[int]) -> None:
    keys = {(0, "abcde"[:block]): block for block in order}
    engine = pool_of(6, held=dict.fromkeys(order, 1), cached=keys, free=())
    for block in order:
        engine = pool.release(engine, [block])
    assert pool.take(engine, 5)[1] == tuple(order)


# Cache groups

WORDS = st.text("ab", max_size=8)
ENGINES = st.sets(st.text("ab", min_size=1, max_size=8).filter(lambda p: len(p) % 2 == 0))


@given(ENGINES, WORDS)
def test_full_attention_that_serves_a_hit_serves_every_shorter_one(
    prefixes: set[str], tokens: str
) -> None:
    engine = pool_of(len(prefixes) + 1, cached={(0, p): n for n, p in enumerate(prefixes, 1)})
    serves = [groups.resident(config(FULL), engine, 0, tokens, n) for n in range(0, len(tokens), 2)]
    assert serves == sorted(serves, reverse=True)


@given(st.sampled_from(["full", "mamba", "window"]), st.integers(0, 20), st.integers(1, 4))
def test_a_hit_needs_nothing_that_its_tokens_have_left_behind(
    kind: str, length: int, size: int
) -> None:
    group = Group(kind, size, window=5)
    needed = group_needs.blocks_needed(group, length)
    assert all(position >= group_needs.skipped_blocks(group, length) for position in needed)


@given(st.integers(0, 8), st.integers(1, 20), st.integers(0, 3))
def test_a_state_table_has_room_for_the_running_state_and_those_of_drafts(
    held: int, end: int, drafts: int
) -> None:
    cfg = config(WIDE, WIDE_STATE, drafts=drafts, num_blocks=90)
    table = tuple(range(1, held + drafts + 1)) if held else ()
    taken = group_needs.grown(cfg, WIDE_STATE, table, end, 0, fresh=not held)
    padded = groups.padded(cfg, WIDE_STATE, table, end, fresh=not held) if taken else table
    running = -(-end // 4)
    assert len(padded) + taken == max(len(table), running + drafts)
    assert sorted(b for b in padded if b != NULL) == list(table)


# Prefix hits


@pytest.mark.parametrize(
    ("cfg", "held", "hit", "external", "why"),
    [
        (config(FULL, MAMBA), cached((2, 4), (2,)), 4, 0, "4 tokens does not hold in every group"),
        (config(FULL), cached((2, 4, 6, 8)), 8, 0, "8 tokens is not a whole number of blocks"),
        (config(FULL), cached((2, 4)), 3, 0, "3 tokens is not a whole number of blocks"),
        (config(FULL), cached((2, 4)), COUNT_MAX - 1, 0, "2147483646 tokens is not a whole number"),
        (config(FULL, MAMBA, role="decode"), cached((2, 4), (2,)), 6, 2, "does not hold in every"),
        (config(FULL, MAMBA, store=True), cached((2, 4), (2,)), 4, 2, "does not hold in every"),
    ],
)
def test_a_hit_that_is_not_there_is_refused(
    cfg: EngineConfig, held: Engine, hit: int, external: int, why: str
) -> None:
    with pytest.raises(NotAllowed, match=why):
        prefix_hits.look_up(cfg, held, TOKENS, hit, external)


def test_before_a_load_full_attention_alone_must_hold_the_hit() -> None:
    decode = config(FULL, MAMBA, role="decode")
    found = prefix_hits.look_up(decode, cached((2, 4), (2,)), TOKENS, 4, 1)
    assert found == Hit(4, (4, 2), 0)


# Admission and growth


def test_blocks_for_a_load_are_taken_after_all_hits_are_referenced() -> None:
    """Block 2 is the head of the queue: without its reference the first group would take it."""
    decode = config(FULL, FULL, role="decode")
    engine, admitted = allocation.admit(
        decode, cached((2,), (2,)), request(TOKENS, external=4), Hit(2, (2, 2), 0)
    )
    assert admitted.tables == ((1, 3, 4), (2, 5, 6))
    assert admitted.computed == 6
    assert engine.free == (7, 8, 9, 10, 11)


def test_a_hit_inside_a_block_is_copied() -> None:
    cfg = config(WIDE, WIDE_STATE, match_unit=2, num_blocks=12)
    hit = Hit(6, (6, 6), 0)
    engine, admitted = allocation.admit(cfg, cached((4, 6), (4, 6)), request(TOKENS), hit)
    engine, grown = allocation.extend(cfg, engine, admitted, 7, fresh=True)
    assert grown.tables == ((1, 3), (NULL, 5))
    assert engine.copies == ((0, 2, 3), (1, 4, 5))


CONFIGS = {
    "full": config(FULL, num_blocks=40),
    "window": config(FULL, WINDOW, num_blocks=40),
    "hybrid": config(FULL, MAMBA, num_blocks=40),
    "three": config(FULL, WINDOW, MAMBA, num_blocks=40),
    "drafts": config(EAGLE, MAMBA, drafts=1, num_blocks=40),
    "state": config(FULL, STATE, drafts=1, prefix_caching=False, num_blocks=40),
    "inside": config(WIDE, WIDE_STATE, match_unit=2, num_blocks=40),
    "decode": config(FULL, WINDOW, MAMBA, role="decode", num_blocks=40),
    "store": config(FULL, WINDOW, MAMBA, store=True, num_blocks=40),
}
LENGTHS = st.lists(st.sets(st.sampled_from([2, 4, 6])), min_size=3, max_size=3)


@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=25)
@given(LENGTHS, st.integers(1, 8), st.integers(1, 8), st.booleans())
def test_who_is_admitted_and_goes_on_takes_what_was_predicted(
    name: str, lengths: list[set[int]], first: int, second: int, loads: bool
) -> None:
    cfg = CONFIGS[name]
    keys = [(group, TOKENS[:n]) for group, each in enumerate(lengths) for n in sorted(each)]
    engine = pool_of(40, cached={key: number for number, key in enumerate(keys, 1)})
    hit = prefix_hits.longest_together(cfg, engine, TOKENS) if cfg.prefix_caching else 0
    brought = 8 - hit if loads and cfg.has_connector else 0
    asked = request(TOKENS, external=brought)
    found = prefix_hits.look_up(cfg, engine, TOKENS, hit, brought)
    ends = [hit + brought] if brought else [min(hit + first, 8), min(hit + first + second, 8)]
    for end in ends:
        admission = found if end == ends[0] else None
        wanted = allocation.predicted(cfg, engine, asked, admission, end)
        grown = allocation.grow(cfg, engine, asked, admission, end)
        assert wanted == len(engine.free) - len(grown.engine.free)
        engine = grown.engine._replace(copies=())
        asked = grown.request._replace(computed=end)


def test_blocks_behind_a_window_or_a_state_come_free_tail_first() -> None:
    held = running(TOKENS, (1, 2, 3), (4, 5, 6), computed=6)
    begun = serving(held)
    engine, after = allocation.release_skipped(config(FULL, WINDOW), begun, held)
    assert after.tables == ((1, 2, 3), (NULL, NULL, 6))
    assert engine.free == (5, 4, 7)
    assert engine.request("r0") == after


# Caching


def keys(engine: Engine) -> list[str]:
    return [prefix for (_, prefix), _ in engine.cached]


def test_what_no_hit_can_be_about_is_not_cached_yet() -> None:
    held = running(TOKENS, (1, 2, 3), (4,), computed=5)
    unequal = config(FULL, WIDE)
    assert keys(caching.cache(unequal, serving(held), held, 6)[0]) == [
        "ab",
        "abcd",
        "abcd",
    ]
    with_drafter = config(EAGLE, WIDE, drafts=1)
    grown = caching.cache(with_drafter, serving(held), held, 6)[0]
    assert [p for (group, p), _ in grown.cached if group == 0] == ["ab", "abcd", "abcdef"]


def test_an_engine_that_hashes_a_block_twice_dies_and_caches_no_more() -> None:
    held = running(TOKENS, (1, 1, 2), computed=5)
    begun = serving(held, cached={(0, "ab"): 1})
    engine, after = caching.cache(config(FULL), begun, held, 6)
    assert engine.dead == Death(message="block 1 is to be hashed twice")
    assert (engine.cached, after) == (begun.cached, held)


def test_the_last_prefix_of_a_prompt_is_cached_inside_its_block() -> None:
    held = running("abcdefg", (1, 2), (3, 4), computed=6)
    cfg = config(WIDE, WIDE_STATE, num_blocks=12, match_unit=2)
    engine = caching.cache(cfg, serving(held, reports=()), held, 6)[0]
    assert engine.blocks_for((0, "abcdef")) == (2,)
    assert engine.blocks_for((1, "abcdef")) == (4,)
    assert engine.reports is not None
    assert engine.reports[-1] == Stored(1, "abcd", "ef", ("abcdef",))


# KV events


def test_a_mirror_follows_the_reports() -> None:
    stored = Stored(0, "ab", "cdef", ("abcd", "abcdef"))
    assert replayed((), [stored]) == ((0, "abcd"), (0, "abcdef"))
    assert replayed(((1, "ab"),), [stored, stored, Removed(0, "abcd")]) == (
        (0, "abcdef"),
        (1, "ab"),
    )
    assert replayed(((1, "ab"),), [Removed(0, "ab")]) == ((1, "ab"),)
    assert replayed(((1, "ab"),), [stored, Cleared()]) == ()


@given(st.sets(st.integers(0, 12)), st.integers(0, 13))
def test_runs_name_every_cached_block_once_and_span_no_other(cached: set[int], end: int) -> None:
    inside = tuple(sorted(p for p in cached if p < end))
    spans = report_spans(range(end), inside)
    assert tuple(p for _, named in spans for p in named) == inside
    assert all(tuple(span) == named for span, named in spans)
    assert all(a.stop < b.start for (a, _), (b, _) in itertools.pairwise(spans))


def test_an_engine_without_events_tells_nothing() -> None:
    assert initial(CLUSTERS["full"]).engines[0].reports is None
    assert initial(CLUSTERS["events"]).engines[0].reports == ()
