"""How many tokens of a request a step may compute, and where a chunk ends beside a Mamba group."""

from hypothesis import given
from hypothesis import strategies as st

from kvproof.model.config import EngineConfig, Group
from kvproof.model.events import Admit, Compute
from kvproof.model.reference.scheduling.chunks import aligned_chunk
from kvproof.model.reference.scheduling.scheduler import take_choice
from tests.by_hand import FULL, MAMBA, config, refused, request, running, step

WIDE, WIDE_STATE = Group("full", 4), Group("mamba", 4)
LONG = config(FULL, MAMBA, num_blocks=30, chunk_tokens=30)


# Where chunks end


def chunk(
    cfg: EngineConfig, prompt: str, start: int, tokens: int, boundary: int = 0, output: str = ""
) -> int:
    """The tokens of a chunk of a request that goes on."""
    held = running(prompt, computed=start, output=output, shared_prefix_boundary=boundary)
    return aligned_chunk(step(cfg, held), held, start, tokens, None)


def test_the_budget_may_be_too_small_for_a_block() -> None:
    narrow = config(WIDE, WIDE_STATE, chunk_tokens=3)
    assert chunk(narrow, "abcdefg", 0, 3) == 3
    assert chunk(narrow, "abcdefg", 3, 3) == 1
    exact = config(WIDE, WIDE_STATE, chunk_tokens=4)
    assert chunk(exact, "abcdefg", 0, 3) == 0


def test_a_chunk_that_would_be_cut_is_refused() -> None:
    work = step(LONG, request("abcdefg"))
    take_choice(work, Admit("r0", 0, 0))
    refused(work, Compute("r0", 5), "r0 gets a chunk that the align split would cut")
    take_choice(work, Compute("r0", 6))


@given(st.integers(1, 12), st.integers(1, 9))
def test_chunks_lead_to_the_end_and_pass_the_last_block_that_a_hit_can_end_at(
    length: int, budget: int
) -> None:
    cfg = config(WIDE, WIDE_STATE, num_blocks=30, chunk_tokens=budget)
    held = running("abcdefghijkl"[:length], computed=0)
    work, ends = step(cfg, held), [0]
    while ends[-1] < length:
        tokens = aligned_chunk(work, held, ends[-1], min(length - ends[-1], budget), None)
        assert 0 < tokens <= budget
        ends.append(ends[-1] + tokens)
    assert (length - 1) // 4 * 4 in ends
    if budget <= 4:
        assert set(range(0, length, 4)) <= set(ends)
