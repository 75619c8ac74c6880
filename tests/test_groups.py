"""Cache groups: laws of what a hit needs, and of how tables grow."""

from hypothesis import given
from hypothesis import strategies as st

from kvproof.model import group_needs
from kvproof.model.config import EngineConfig, Group
from kvproof.model.reference.blocks import groups
from kvproof.model.state import NULL, Table
from tests.by_hand import FULL, MAMBA, STATE, WINDOW, config, pool_of

WIDE = Group("full", 4)
WIDE_STATE = Group("mamba", 4)
KINDS = {"full": FULL, "window": WINDOW, "mamba": MAMBA}


# What is left behind


def of(*kinds: Group) -> EngineConfig:
    """The configuration of an engine with these groups, and with what they need."""
    drafts = int(any(group.eagle for group in kinds))
    return config(*kinds, drafts=drafts, prefix_caching=STATE not in kinds)


# How tables grow


def grown(
    cfg: EngineConfig, group: Group, table: Table, end: int, ahead: int = 0, fresh: bool = False
) -> int:
    return group_needs.grown(cfg, group, table, end, ahead, fresh=fresh)


# Laws

WORDS = st.text("ab", max_size=8)
ENGINES = st.sets(st.text("ab", min_size=1, max_size=8).filter(lambda p: len(p) % 2 == 0))


@given(ENGINES, WORDS)
def test_full_attention_that_serves_a_hit_serves_every_shorter_one(
    prefixes: set[str], tokens: str
) -> None:
    engine = pool_of(len(prefixes) + 1, cached={(0, p): n for n, p in enumerate(prefixes, 1)})
    serves = [groups.resident(of(FULL), engine, 0, tokens, n) for n in range(0, len(tokens), 2)]
    assert serves == sorted(serves, reverse=True)


@given(st.sampled_from(sorted(KINDS)), st.integers(0, 20), st.integers(1, 4))
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
    taken = grown(cfg, WIDE_STATE, table, end, fresh=not held)
    padded = groups.padded(cfg, WIDE_STATE, table, end, fresh=not held) if taken else table
    running = -(-end // 4)
    assert len(padded) + taken == max(len(table), running + drafts)
    assert sorted(b for b in padded if b != NULL) == list(table)
