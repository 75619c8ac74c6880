"""What a request is predicted to take is what it takes: nobody is let in who does not fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproof.model.config import Engine, Group
from kvproof.model.reference.blocks import coordinator, growth
from kvproof.model.reference.blocks.coordinator import Hit
from kvproof.model.reference.rules import SPEC
from kvproof.model.state import NULL
from tests.by_hand import EAGLE, FULL, MAMBA, STATE, WINDOW, config, pool_of, request, serving

WIDE, WIDE_STATE = Group("full", 4), Group("mamba", 4)
TOKENS = "abcdefgh"
NOTHING = Hit(0, (0, 0), 0)


def needed(cfg: Engine, end: int, hit: Hit = NOTHING, external: int = 0) -> int:
    """Blocks that an admission to `end` tokens is predicted to take of an empty engine."""
    asked = request(TOKENS, external=external)
    return coordinator.predicted(cfg, pool_of(20), asked, hit, end, SPEC)


@pytest.mark.parametrize(("end", "blocks"), [(4, 0), (5, 2), (6, 2), (7, 3)])
def test_a_running_request_needs_blocks_of_attention_and_one_state(end: int, blocks: int) -> None:
    held = request(TOKENS, (1, 2), (NULL, 3), status="running", computed=4)
    assert (
        coordinator.predicted(config(FULL, MAMBA), serving(held), held, None, end, SPEC) == blocks
    )


def test_a_hit_that_is_free_costs_a_block_and_one_in_use_nothing() -> None:
    hit, asked = Hit(2, (2,), 0), request("abc")
    for held, blocks in ({}, 2), ({1: 1}, 1):
        engine = pool_of(8, held=held, cached={(0, "ab"): 1})
        assert coordinator.predicted(config(FULL), engine, asked, hit, 3, SPEC) == blocks


def test_blocks_of_a_hit_that_are_left_behind_cost_nothing() -> None:
    engine = pool_of(9, cached={(0, "ab"): 1, (0, "abcd"): 2, (1, "ab"): 3, (1, "abcd"): 4})
    hit = Hit(4, (4, 4), 0)
    windowed = config(FULL, WINDOW)
    assert coordinator.predicted(windowed, engine, request(TOKENS), hit, 5, SPEC) == 5


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
    assert coordinator.predicted(cfg, engine, request(TOKENS), hit, 7, SPEC) == 5


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
@given(LENGTHS, st.integers(1, 8), st.integers(1, 8), st.booleans())
def test_who_is_admitted_and_goes_on_takes_what_was_predicted(
    name: str, lengths: list[set[int]], first: int, second: int, loads: bool
) -> None:
    cfg = CONFIGS[name]
    keys = [(group, TOKENS[:n]) for group, each in enumerate(lengths) for n in sorted(each)]
    engine = pool_of(40, cached={key: number for number, key in enumerate(keys, 1)})
    hit = coordinator.longest_together(cfg, engine, TOKENS, SPEC) if cfg.prefix_caching else 0
    brought = 8 - hit if loads and cfg.has_connector else 0
    asked = request(TOKENS, external=brought)
    found = coordinator.look_up(cfg, engine, TOKENS, hit, brought, SPEC)
    ends = [hit + brought] if brought else [min(hit + first, 8), min(hit + first + second, 8)]
    for end in ends:
        admission = found if end == ends[0] else None
        wanted = coordinator.predicted(cfg, engine, asked, admission, end, SPEC)
        grown = growth.grow(cfg, engine, asked, admission, end, SPEC)
        assert wanted == len(engine.free) - len(grown.engine.free)
        engine = grown.engine._replace(copies=())
        asked = grown.request._replace(computed=end)
