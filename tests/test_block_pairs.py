"""The blocks that P offers and D lacks, and which of them are paired."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kvproof.model.config import Cluster, Group
from kvproof.model.reference.transfers import block_pairs
from kvproof.model.state import Transfer
from tests.by_hand import FULL, on_decode, pair

# Pairs


def pairs(cluster: Cluster, table: tuple[int, ...], local: Any, remote: Any, tokens: int) -> Any:
    held = on_decode("abcdefgh", *(table,) * len(cluster.decode.groups), external=2)
    transfer = Transfer("r0", "reading", tokens, remote, local)
    return block_pairs.paired(cluster, held, transfer).pairs


def unequal(prefill: int, decode: int) -> Cluster:
    """P and D with kernel blocks of 2 tokens, so many of them to a block."""
    made = pair(FULL)
    p, d = (
        replace(e, groups=(Group("full", 2 * n),), physical_per_logical=n)
        for e, n in zip(made.engines, (prefill, decode), strict=True)
    )
    return replace(made, engines=(p, d))


def test_blocks_of_other_sizes_are_paired_kernel_block_by_kernel_block() -> None:
    assert pairs(unequal(2, 1), (1, 2, 3), ((1, 2, 3),), ((4, 5),), 6) == (((1, 2, 3), (8, 9, 10)),)
    assert pairs(unequal(1, 2), (1, 2), ((1, 2),), ((4, 5, 6),), 6) == (((2, 3, 4), (4, 5, 6)),)
    assert pairs(unequal(2, 1), (1, 2, 3), ((3,),), ((4, 5),), 6) == (((3,), (10,)),)


@given(st.integers(1, 8), st.integers(0, 4), st.integers(1, 2), st.integers(1, 2))
def test_pairs_are_equally_long_and_at_equal_positions(
    tokens: int, hit: int, prefill: int, decode: int
) -> None:
    cluster = unequal(prefill, decode)
    table = tuple(range(1, -(-tokens // (2 * decode)) + 1))
    remote = tuple(range(11, 11 + -(-tokens // (2 * prefill))))
    ((ours, theirs),) = pairs(cluster, table, (table[hit:],), (remote,), tokens)
    places = [table.index(b // decode) * decode + b % decode for b in ours]
    assert places == [remote.index(b // prefill) * prefill + b % prefill for b in theirs]
    lacking = range(len(table[:hit]) * decode, -(-tokens // 2))
    assert set(lacking) <= set(places)
