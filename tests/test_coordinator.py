"""The coordinator: a hit must hold in every group, and blocks are taken, cached and let go over all
of them. What was predicted is what is taken."""

import pytest

from kvproof.model import config as configuration
from kvproof.model.config import Group
from kvproof.model.errors import NotAllowed
from kvproof.model.reference.blocks import coordinator
from kvproof.model.reference.blocks.coordinator import Hit
from kvproof.model.reference.rules import SPEC
from kvproof.model.state import NULL, Engine
from tests.by_hand import EAGLE, FULL, MAMBA, WINDOW, config, pool_of, request, serving

WIDE, WIDE_STATE = Group("full", 4), Group("mamba", 4)
HYBRID = config(FULL, MAMBA)
WINDOWED = config(FULL, WINDOW)
TOKENS = "abcdefgh"


def cached(*lengths: tuple[int, ...], count: int = 12) -> Engine:
    """An engine where each group has the prefixes of TOKENS of these lengths cached, in blocks that
    are numbered from 1 on."""
    keys = [(group, TOKENS[:n]) for group, each in enumerate(lengths) for n in each]
    return pool_of(count, cached={key: number for number, key in enumerate(keys, 1)})


# Hits


def test_a_group_alone_serves_the_longest_hit_up_to_a_limit() -> None:
    engine = cached((2, 4, 6), (2, 6))
    assert coordinator.longest_alone(HYBRID, engine, TOKENS, 0, 8) == 6
    assert coordinator.longest_alone(HYBRID, engine, TOKENS, 0, 6) == 6
    assert coordinator.longest_alone(HYBRID, engine, TOKENS, 0, 5) == 4
    assert coordinator.longest_alone(HYBRID, engine, TOKENS, 1, 5) == 2
    assert list(coordinator.each_alone(HYBRID, engine, TOKENS)) == [6, 6]


def test_a_hit_leaves_a_token_to_compute() -> None:
    engine = cached((2, 4))
    assert coordinator.longest_together(config(FULL), engine, "abcd", SPEC) == 2
    assert coordinator.longest_together(config(FULL), engine, "abcde", SPEC) == 4


def test_a_hit_holds_in_every_group() -> None:
    assert coordinator.longest_together(HYBRID, cached((2, 4, 6), (2, 6)), TOKENS, SPEC) == 6
    assert coordinator.longest_together(HYBRID, cached((2, 4, 6), (2, 4)), TOKENS, SPEC) == 4
    assert coordinator.longest_together(HYBRID, cached((2, 4), (6,)), TOKENS, SPEC) == 0


def test_a_drafter_computes_the_last_matched_block_again() -> None:
    cfg = config(EAGLE, drafts=1)
    assert coordinator.longest_together(cfg, cached((2, 4, 6)), TOKENS, SPEC) == 4
    assert coordinator.longest_together(cfg, cached((2,)), TOKENS, SPEC) == 0


def test_a_hit_inside_a_block_is_passed_over_where_its_copies_have_no_room() -> None:
    for blocks, hit in (6, 6), (5, 4):
        cfg = config(WIDE, WIDE_STATE, match_unit=2, num_blocks=blocks)
        engine = cached((4, 6), (4, 6))
        assert coordinator.longest_together(cfg, engine, "abcdefg", SPEC) == hit


def test_full_attention_by_itself() -> None:
    assert coordinator.longest_full(HYBRID, cached((2, 4), (6,)), TOKENS) == 4
    two = config(FULL, FULL)
    assert coordinator.longest_full(two, cached((2, 4), (2,)), TOKENS) == 2
    assert coordinator.longest_full(config(MAMBA), cached((2, 4)), TOKENS) == 0


def test_a_group_is_deeper_than_full_attention_that_lost_a_part() -> None:
    assert coordinator.deeper(HYBRID, cached((2,), (2, 4)), TOKENS)
    assert not coordinator.deeper(HYBRID, cached((2, 4), (2, 4)), TOKENS)


def look_up(cfg: configuration.Engine, engine: Engine, hit: int, external: int = 0) -> Hit:
    return coordinator.look_up(cfg, engine, TOKENS, hit, external, SPEC)


def test_a_hit_that_every_group_holds_is_each_groups_own() -> None:
    assert look_up(HYBRID, cached((2, 4), (4,)), 4) == Hit(4, (4, 4), 0)
    assert look_up(HYBRID, cached((2, 4), (4,)), 0) == Hit(0, (0, 0), 4)


def test_no_hit_is_always_allowed_and_one_without_a_cache_never() -> None:
    off = config(FULL, prefix_caching=False)
    assert look_up(off, cached((2,)), 0) == Hit(0, (0,), 0)
    with pytest.raises(NotAllowed, match="prefix caching is off"):
        look_up(off, cached((2,)), 2)


def test_a_hit_that_some_group_does_not_hold_is_refused() -> None:
    with pytest.raises(NotAllowed, match="a hit of 4 tokens does not hold in every group"):
        look_up(HYBRID, cached((2, 4), (2,)), 4)


def test_a_hit_that_is_no_whole_block_or_leaves_no_token_is_refused() -> None:
    with pytest.raises(NotAllowed, match="a hit of 8 tokens is not a whole number of blocks"):
        look_up(config(FULL), cached((2, 4, 6, 8)), 8)
    with pytest.raises(NotAllowed, match="a hit of 3 tokens is not a whole number of blocks"):
        look_up(config(FULL), cached((2, 4)), 3)


def test_a_hit_inside_a_block_needs_room_for_copies() -> None:
    roomy = config(WIDE, WIDE_STATE, match_unit=2, num_blocks=7)
    assert look_up(roomy, cached((4, 6), (4, 6)), 6).tokens == 6
    tight = config(WIDE, WIDE_STATE, match_unit=2, num_blocks=5)
    with pytest.raises(NotAllowed, match="a hit of 6 tokens has no room"):
        look_up(tight, cached((4, 6), (4, 6)), 6)


def test_before_a_load_full_attention_alone_must_hold_the_hit() -> None:
    decode = config(FULL, MAMBA, role="decode")
    engine = cached((2, 4), (2,))
    assert look_up(decode, engine, 4, external=1) == Hit(4, (4, 2), 0)
    with pytest.raises(NotAllowed, match="does not hold in every group"):
        look_up(decode, engine, 6, external=2)
    store = config(FULL, MAMBA, store=True)
    with pytest.raises(NotAllowed, match="does not hold in every group"):
        look_up(store, engine, 4, external=2)


# Where prompts part


def test_a_state_is_kept_where_full_attention_goes_further_than_the_hit() -> None:
    engine = cached((2, 4), (2,))
    assert look_up(HYBRID, engine, 2).shared_prefix_boundary == 4
    assert look_up(WINDOWED, engine, 2).shared_prefix_boundary == 0
    assert look_up(config(FULL, WINDOW, retention=0), engine, 2).shared_prefix_boundary == 4
    assert look_up(config(FULL, MAMBA, prefix_caching=False), engine, 0).shared_prefix_boundary == 0


def test_who_gets_the_state_by_a_load_looks_no_further_unless_a_group_is_deeper() -> None:
    decode = config(FULL, MAMBA, role="decode")
    assert look_up(decode, cached((2, 4), (2,)), 2, external=2).shared_prefix_boundary == 0
    assert look_up(decode, cached((2, 4), (2, 4, 6)), 2, external=2).shared_prefix_boundary == 4
    store = config(FULL, MAMBA, store=True)
    assert look_up(store, cached((2, 4), (2,)), 2, external=2).shared_prefix_boundary == 4


# Admission and growth


def test_an_admission_gets_the_blocks_of_its_hit() -> None:
    engine, admitted = coordinator.admit(
        WINDOWED, cached((2, 4), (2, 4)), request(TOKENS), Hit(4, (4, 4), 2), SPEC
    )
    assert admitted.tables == ((1, 2), (NULL, 4))
    assert (admitted.computed, admitted.hit, admitted.shared_prefix_boundary) == (4, 4, 2)
    assert admitted.num_cached_blocks == (2, 2)
    assert [b.refs for b in engine.blocks][:5] == [0, 1, 1, 0, 1]
    assert engine.request("r0") == admitted


def test_a_preempted_request_keeps_what_it_counted_as_cached() -> None:
    before = request(TOKENS, num_cached_blocks=(3,))
    _, admitted = coordinator.admit(config(FULL), cached((2,)), before, Hit(2, (2,), 0), SPEC)
    assert admitted.num_cached_blocks == (3,)


def test_blocks_for_a_load_are_taken_after_all_hits_are_referenced() -> None:
    """Block 2 is the head of the queue: without its reference the first group would take it."""
    decode = config(FULL, FULL, role="decode")
    engine, admitted = coordinator.admit(
        decode, cached((2,), (2,)), request(TOKENS, external=4), Hit(2, (2, 2), 0), SPEC
    )
    assert admitted.tables == ((1, 3, 4), (2, 5, 6))
    assert admitted.computed == 6
    assert engine.free == (7, 8, 9, 10, 11)


def test_a_load_brings_the_state_at_its_end() -> None:
    decode = config(FULL, MAMBA, role="decode")
    loads = request("abcdefg", external=7)
    _, admitted = coordinator.admit(decode, cached((), ()), loads, Hit(0, (0, 0), 0), SPEC)
    assert admitted.tables == ((1, 2, 3, 4), (NULL, NULL, NULL, 5))
    assert admitted.num_cached_blocks == (0, 0)


def test_a_window_is_let_go_by_the_token_that_a_load_is_resumed_at() -> None:
    """All 8 tokens are loaded and the last is computed again: it sees tokens 5 and 6, and so the
    third block stays."""
    decode = config(FULL, WINDOW, role="decode", num_blocks=20)
    loaded = request(TOKENS, external=8)
    _, admitted = coordinator.admit(
        decode, cached((), (), count=20), loaded, Hit(0, (0, 0), 0), SPEC
    )
    assert admitted.tables[1][:2] == (NULL, NULL)
    assert NULL not in admitted.tables[1][2:]


def test_growth_takes_what_is_lacking_behind_what_is_there() -> None:
    running = request(TOKENS, (1,), (NULL, 2), status="running", computed=4)
    begun = serving(running, count=8)
    engine, after = coordinator.grow(HYBRID, begun, running, 6, SPEC)
    assert after.tables == ((1, 3, 4), (NULL, 2, 5))
    assert engine.request("r0") == after
    same, _ = coordinator.grow(config(FULL), begun, running._replace(tables=((1,),)), 2, SPEC)
    assert same.free == begun.free


def test_who_loads_takes_no_slots_ahead() -> None:
    cfg = config(EAGLE, drafts=1)
    held = request(TOKENS, (1,), computed=2)
    assert coordinator.grow(cfg, serving(held), held, 2, SPEC)[1].tables == ((1, 2),)
    assert coordinator.grow(cfg, serving(held), held, 2, SPEC, loads=True)[1].tables == ((1,),)


def test_a_hit_inside_a_block_is_copied() -> None:
    cfg = config(WIDE, WIDE_STATE, match_unit=2, num_blocks=12)
    hit = Hit(6, (6, 6), 0)
    engine, admitted = coordinator.admit(cfg, cached((4, 6), (4, 6)), request(TOKENS), hit, SPEC)
    engine, grown = coordinator.grow(cfg, engine, admitted, 7, SPEC, fresh=True)
    assert grown.tables == ((1, 3), (NULL, 5))
    assert engine.copies == ((0, 2, 3), (1, 4, 5))
