"""The blocks of an admission and of growth: hits first, then what is new. What was predicted is
what is taken, so that nobody is let in who does not fit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.model.config import EngineConfig, Group
from kvproof.model.reference.blocks import allocation, growth, prefix_hits
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.state import NULL, Request
from tests.by_hand import (
    EAGLE,
    FULL,
    MAMBA,
    STATE,
    TOKENS,
    WINDOW,
    cached,
    config,
    pool_of,
    request,
    serving,
)

WIDE, WIDE_STATE = Group("full", 4), Group("mamba", 4)
HYBRID = config(FULL, MAMBA)
WINDOWED = config(FULL, WINDOW)
NOTHING = Hit(0, (0, 0), 0)


# Admission and growth


def test_an_admission_gets_the_blocks_of_its_hit() -> None:
    engine, admitted = allocation.admit(
        WINDOWED, cached((2, 4), (2, 4)), request(TOKENS), Hit(4, (4, 4), 2)
    )
    assert admitted.tables == ((1, 2), (NULL, 4))
    assert (admitted.computed, admitted.hit, admitted.shared_prefix_boundary) == (4, 4, 2)
    assert admitted.num_cached_blocks == (2, 2)
    assert [b.refs for b in engine.blocks][:5] == [0, 1, 1, 0, 1]
    assert engine.request("r0") == admitted


def test_a_preempted_request_keeps_what_it_counted_as_cached() -> None:
    before = request(TOKENS, num_cached_blocks=(3,))
    _, admitted = allocation.admit(config(FULL), cached((2,)), before, Hit(2, (2,), 0))
    assert admitted.num_cached_blocks == (3,)


def test_blocks_for_a_load_are_taken_after_all_hits_are_referenced() -> None:
    """Block 2 is the head of the queue: without its reference the first group would take it."""
    decode = config(FULL, FULL, role="decode")
    engine, admitted = allocation.admit(
        decode, cached((2,), (2,)), request(TOKENS, external=4), Hit(2, (2, 2), 0)
    )
    assert admitted.tables == ((1, 3, 4), (2, 5, 6))
    assert admitted.computed == 6
    assert engine.free == (7, 8, 9, 10, 11)


def test_a_load_brings_the_state_at_its_end() -> None:
    decode = config(FULL, MAMBA, role="decode")
    loads = request("abcdefg", external=7)
    _, admitted = allocation.admit(decode, cached((), ()), loads, Hit(0, (0, 0), 0))
    assert admitted.tables == ((1, 2, 3, 4), (NULL, NULL, NULL, 5))
    assert admitted.num_cached_blocks == (0, 0)


def test_a_window_is_let_go_by_the_token_that_a_load_is_resumed_at() -> None:
    """All 8 tokens are loaded and the last is computed again: it sees tokens 5 and 6, and so the
    third block stays."""
    decode = config(FULL, WINDOW, role="decode", num_blocks=20)
    loaded = request(TOKENS, external=8)
    _, admitted = allocation.admit(decode, cached((), (), count=20), loaded, Hit(0, (0, 0), 0))
    assert admitted.tables[1][:2] == (NULL, NULL)
    assert NULL not in admitted.tables[1][2:]


def test_growth_takes_what_is_lacking_behind_what_is_there() -> None:
    running = request(TOKENS, (1,), (NULL, 2), status="running", computed=4)
    begun = serving(running, count=8)
    engine, after = allocation.grow(HYBRID, begun, running, 6)
    assert after.tables == ((1, 3, 4), (NULL, 2, 5))
    assert engine.request("r0") == after
    same, _ = allocation.grow(config(FULL), begun, running._replace(tables=((1,),)), 2)
    assert same.free == begun.free


def test_who_loads_takes_no_slots_ahead() -> None:
    cfg = config(EAGLE, drafts=1)
    held = request(TOKENS, (1,), computed=2)
    assert allocation.grow(cfg, serving(held), held, 2)[1].tables == ((1, 2),)
    assert allocation.grow(cfg, serving(held), held, 2, loads=True)[1].tables == ((1,),)


def test_a_hit_inside_a_block_is_copied() -> None:
    cfg = config(WIDE, WIDE_STATE, match_unit=2, num_blocks=12)
    hit = Hit(6, (6, 6), 0)
    engine, admitted = allocation.admit(cfg, cached((4, 6), (4, 6)), request(TOKENS), hit)
    engine, grown = allocation.grow(cfg, engine, admitted, 7, fresh=True)
    assert grown.tables == ((1, 3), (NULL, 5))
    assert engine.copies == ((0, 2, 3), (1, 4, 5))


# What is predicted


def needed(cfg: EngineConfig, end: int, hit: Hit = NOTHING, external: int = 0) -> int:
    """Blocks that an admission to `end` tokens is predicted to take of an empty engine."""
    asked = request(TOKENS, external=external)
    return allocation.predicted(cfg, pool_of(20), asked, hit, end)


@pytest.mark.parametrize(("end", "blocks"), [(4, 0), (5, 2), (6, 2), (7, 3)])
def test_a_running_request_needs_blocks_of_attention_and_one_state(end: int, blocks: int) -> None:
    held = request(TOKENS, (1, 2), (NULL, 3), status="running", computed=4)
    assert allocation.predicted(config(FULL, MAMBA), serving(held), held, None, end) == blocks


def test_a_hit_that_is_free_costs_a_block_and_one_in_use_nothing() -> None:
    hit, asked = Hit(2, (2,), 0), request("abc")
    for held, blocks in ({}, 2), ({1: 1}, 1):
        engine = pool_of(8, held=held, cached={(0, "ab"): 1})
        assert allocation.predicted(config(FULL), engine, asked, hit, 3) == blocks


def test_blocks_of_a_hit_that_are_left_behind_cost_nothing() -> None:
    engine = pool_of(9, cached={(0, "ab"): 1, (0, "abcd"): 2, (1, "ab"): 3, (1, "abcd"): 4})
    hit = Hit(4, (4, 4), 0)
    windowed = config(FULL, WINDOW)
    assert allocation.predicted(windowed, engine, request(TOKENS), hit, 5) == 5


def test_the_state_of_a_load_has_a_block_beside_that_of_the_chunk_after_it() -> None:
    store = config(FULL, MAMBA, store=True, num_blocks=20)
    assert needed(store, 4, external=4) == 3
    assert needed(store, 6, external=4) == 5


def test_slots_for_drafts_are_taken_where_something_is_computed() -> None:
    cfg = config(EAGLE, drafts=1, store=True)
    assert needed(cfg, 4) == 3
    assert needed(cfg, 4, external=4) == 2
    assert needed(cfg, 6, external=4) == 4


def test_a_state_of_mode_none_is_one_block_and_one_for_each_draft() -> None:
    off = {"prefix_caching": False, "num_blocks": 20}
    assert needed(config(FULL, STATE, **off), 2) == 2
    assert needed(config(FULL, STATE, drafts=2, **off), 2) == 4


def test_a_hit_inside_a_block_costs_its_copies() -> None:
    cfg = config(WIDE, WIDE_STATE, match_unit=2, num_blocks=20)
    keys = [(group, TOKENS[:n]) for group in (0, 1) for n in (4, 6)]
    engine = pool_of(20, cached={key: number for number, key in enumerate(keys, 1)})
    hit = Hit(6, (6, 6), 0)
    assert allocation.predicted(cfg, engine, request(TOKENS), hit, 7) == 5


# The law

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
        grown = growth.grow(cfg, engine, asked, admission, end)
        assert wanted == len(engine.free) - len(grown.engine.free)
        engine = grown.engine._replace(copies=())
        asked = grown.request._replace(computed=end)


# Letting go


def held_by(*tables: tuple[int, ...], **fields: object) -> Request:
    fields = {"status": "running", "computed": 5, "num_cached_blocks": (0,) * len(tables)} | fields
    return request("abcdefgh", *tables, **fields)


def test_blocks_behind_a_window_or_a_state_come_free_tail_first() -> None:
    held = held_by((1, 2, 3), (4, 5, 6), computed=6)
    begun = serving(held)
    engine, after = allocation.release_skipped(config(FULL, WINDOW), begun, held)
    assert after.tables == ((1, 2, 3), (NULL, NULL, 6))
    assert engine.free == (5, 4, 7)
    assert engine.request("r0") == after


def test_as_many_tokens_are_left_behind_as_are_said() -> None:
    held = held_by((1, 2, 3), (4, 5, 6), computed=6)
    _, after = allocation.release_skipped(config(FULL, MAMBA), serving(held), held, computed=3)
    assert after.tables == ((1, 2, 3), (NULL, 5, 6))
    _, none = allocation.release_skipped(config(FULL, MAMBA), serving(held), held, computed=0)
    assert none.tables == held.tables


def test_no_more_is_let_go_than_the_table_has() -> None:
    held = held_by((1, 2, 3), (4,), computed=8)
    _, after = allocation.release_skipped(config(FULL, MAMBA), serving(held), held)
    assert after.tables[1] == (NULL,)
    bare = held._replace(tables=())
    _, still = allocation.release_skipped(HYBRID, serving(bare), bare)
    assert still.tables == ()


def test_an_emptied_request_keeps_its_tokens_and_nothing_else() -> None:
    full = request(
        *("abcd", (1,)),
        **{"output": ".", "computed": 5, "hit": 2, "external": 2, "drafts": 1},
        **{"num_cached_blocks": (2,), "shared_prefix_boundary": 4, "states": (3,)},
    )
    assert allocation.without_progress(full) == request("abcd", output=".")
