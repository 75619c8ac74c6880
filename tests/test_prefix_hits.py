"""Prefix hits: what each group could serve alone, and what holds in every group."""

import pytest

from kvproof.model import config as configuration
from kvproof.model.config import Group
from kvproof.model.errors import NotAllowed
from kvproof.model.events import COUNT_MAX
from kvproof.model.reference.blocks import prefix_hits
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.state import Engine
from tests.by_hand import EAGLE, FULL, MAMBA, TOKENS, WINDOW, cached, config

WIDE, WIDE_STATE = Group("full", 4), Group("mamba", 4)
HYBRID = config(FULL, MAMBA)
WINDOWED = config(FULL, WINDOW)


# Hits


def test_a_group_alone_serves_the_longest_hit_up_to_a_limit() -> None:
    engine = cached((2, 4, 6), (2, 6))
    assert prefix_hits.longest_alone(HYBRID, engine, TOKENS, 0, 8) == 6
    assert prefix_hits.longest_alone(HYBRID, engine, TOKENS, 0, 6) == 6
    assert prefix_hits.longest_alone(HYBRID, engine, TOKENS, 0, 5) == 4
    assert prefix_hits.longest_alone(HYBRID, engine, TOKENS, 1, 5) == 2
    assert list(prefix_hits.each_alone(HYBRID, engine, TOKENS)) == [6, 6]


def test_a_hit_leaves_a_token_to_compute() -> None:
    engine = cached((2, 4))
    assert prefix_hits.longest_together(config(FULL), engine, "abcd") == 2
    assert prefix_hits.longest_together(config(FULL), engine, "abcde") == 4


def test_a_hit_holds_in_every_group() -> None:
    assert prefix_hits.longest_together(HYBRID, cached((2, 4, 6), (2, 6)), TOKENS) == 6
    assert prefix_hits.longest_together(HYBRID, cached((2, 4, 6), (2, 4)), TOKENS) == 4
    assert prefix_hits.longest_together(HYBRID, cached((2, 4), (6,)), TOKENS) == 0


def test_a_drafter_computes_the_last_matched_block_again() -> None:
    cfg = config(EAGLE, drafts=1)
    assert prefix_hits.longest_together(cfg, cached((2, 4, 6)), TOKENS) == 4
    assert prefix_hits.longest_together(cfg, cached((2,)), TOKENS) == 0


def test_a_hit_inside_a_block_is_passed_over_where_its_copies_have_no_room() -> None:
    for blocks, hit in (6, 6), (5, 4):
        cfg = config(WIDE, WIDE_STATE, match_unit=2, num_blocks=blocks)
        engine = cached((4, 6), (4, 6))
        assert prefix_hits.longest_together(cfg, engine, "abcdefg") == hit


def test_full_attention_by_itself() -> None:
    assert prefix_hits.longest_full(HYBRID, cached((2, 4), (6,)), TOKENS) == 4
    two = config(FULL, FULL)
    assert prefix_hits.longest_full(two, cached((2, 4), (2,)), TOKENS) == 2
    assert prefix_hits.longest_full(config(MAMBA), cached((2, 4)), TOKENS) == 0


def test_a_group_is_deeper_than_full_attention_that_lost_a_part() -> None:
    assert prefix_hits.deeper(HYBRID, cached((2,), (2, 4)), TOKENS)
    assert not prefix_hits.deeper(HYBRID, cached((2, 4), (2, 4)), TOKENS)


def look_up(cfg: configuration.EngineConfig, engine: Engine, hit: int, external: int = 0) -> Hit:
    return prefix_hits.look_up(cfg, engine, TOKENS, hit, external)


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
    with pytest.raises(NotAllowed, match="a hit of 2147483646 tokens is not a whole number"):
        look_up(config(FULL), cached((2, 4)), COUNT_MAX - 1)


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
