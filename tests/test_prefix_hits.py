"""Prefix hits: what each group could serve alone, and what holds in every group."""

import pytest

from kvproof.model import config as configuration
from kvproof.model.config import Group
from kvproof.model.errors import NotAllowed
from kvproof.model.events import COUNT_MAX
from kvproof.model.reference.blocks import prefix_hits
from kvproof.model.reference.blocks.prefix_hits import Hit
from kvproof.model.state import Engine
from tests.by_hand import FULL, MAMBA, TOKENS, cached, config

WIDE, WIDE_STATE = Group("full", 4), Group("mamba", 4)
HYBRID = config(FULL, MAMBA)


# Hits


def look_up(cfg: configuration.EngineConfig, engine: Engine, hit: int, external: int = 0) -> Hit:
    return prefix_hits.look_up(cfg, engine, TOKENS, hit, external)


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


def test_before_a_load_full_attention_alone_must_hold_the_hit() -> None:
    decode = config(FULL, MAMBA, role="decode")
    engine = cached((2, 4), (2,))
    assert look_up(decode, engine, 4, external=1) == Hit(4, (4, 2), 0)
    with pytest.raises(NotAllowed, match="does not hold in every group"):
        look_up(decode, engine, 6, external=2)
    store = config(FULL, MAMBA, store=True)
    with pytest.raises(NotAllowed, match="does not hold in every group"):
        look_up(store, engine, 4, external=2)
