"""Symbolic memory: which prefix each slot of each block holds, and what a step reads and writes.

A slot of attention holds the prefix whose last token's keys and values it is; a Mamba block holds
the prefix whose state it is.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproof.model import memory
from kvproof.model.config import Group
from kvproof.model.state import Content, Engine, Request
from tests.by_hand import FULL, MAMBA, WINDOW, config, request, serving


def engine(*contents: tuple[int, tuple[str, ...]] | None, count: int = 8) -> Engine:
    """An engine whose blocks from 1 on have these contents: a group, and its slots."""
    held = [None if c is None else Content(*c) for c in contents]
    empty = [None] * (count - 1 - len(held))
    return serving(count=count)._replace(memory=(None, *held, *empty))


def computing(prompt: str, *tables: tuple[int, ...], end: int, **fields: Any) -> Request:
    """A request whose step ends at `end` tokens."""
    return request(prompt, *tables, status="running", computed=end, **fields)


# The blocks that a step uses


@pytest.mark.parametrize(
    ("group", "end", "tokens", "blocks"),
    [
        (FULL, 5, 1, (1, 2, 3)),
        (FULL, 4, 2, (1, 2)),
        (WINDOW, 5, 1, (2, 3)),
        (WINDOW, 8, 1, (3, 4)),
        (WINDOW, 7, 1, (3, 4)),
        (MAMBA, 5, 1, (2, 3)),
        (MAMBA, 6, 1, (3,)),
        (MAMBA, 8, 6, (1, 4)),
        (MAMBA, 2, 2, (1,)),
    ],
)
def test_blocks_that_a_step_reads_or_writes(
    group: Group, end: int, tokens: int, blocks: tuple[int, ...]
) -> None:
    held = computing("abcdefgh", (1, 2, 3, 4), end=end)
    assert memory.used(config(group), held, tokens) == blocks


# Loads and copies


def test_a_transfer_fills_kernel_block_by_kernel_block() -> None:
    """P has two kernel blocks of 2 tokens to a block, D one: D's blocks 3 and 4 are P's block 1."""
    p = config(Group("full", 4), physical_per_logical=2)
    source = engine((0, ("a", "ab", "abc", "abcd")))
    sink = memory.copy(p, config(FULL), source, engine(), [((3, 4), (2, 3))])
    assert sink.memory[3:5] == (Content(0, ("a", "ab")), Content(0, ("abc", "abcd")))
    back = memory.copy(config(FULL), p, sink, engine(), [((2, 3), (3, 4))])
    assert back.memory[1] == source.memory[1]


@given(st.integers(1, 8), st.lists(st.integers(1, 4), max_size=8))
def test_a_prompt_in_any_chunks_reads_its_own_tokens(length: int, chunks: list[int]) -> None:
    cfg, held = config(FULL, WINDOW, MAMBA), engine(count=13)
    tables = ((1, 2, 3, 4), (5, 6, 7, 8), (9, 10, 11, 12))
    end = 0
    for chunk in [*chunks, length]:
        start, end = end, min(end + chunk, length)
        if end > start:
            step = [(computing("abcdefgh"[:length], *tables, end=end), end - start)]
            held, reads = memory.run(cfg, held, step)
            assert len(reads) >= end
            assert all(read.found == read.expected for read in reads)
