"""The blocks of an admission and of growth: hits first, then what is new. What was predicted is
what is taken, so that nobody is let in who does not fit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.model.config import Group
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
    engine, grown = allocation.grow(cfg, engine, admitted, 7, fresh=True)
    assert grown.tables == ((1, 3), (NULL, 5))
    assert engine.copies == ((0, 2, 3), (1, 4, 5))


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
