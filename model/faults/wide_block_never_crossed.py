"""The align split waits for a token budget that reaches the next block boundary (vllm#36734). If a
block is wider than the budget of a whole step, no step has such a budget, and the request waits for
ever."""

from kvproof.model.arithmetic.algebra import Num, max_
from kvproof.model.arithmetic.counts import align_chunk
from kvproof.model.faults.fault import Fault


def waiting_for_a_boundary(
    start: Num, tokens: Num, prefill_end: Num, known: Num, block_size: Num, limit: Num, *others: Num
) -> Num:
    """The align split as if every block fitted into one step."""
    wide = max_(limit, block_size)
    return align_chunk(start, tokens, prefill_end, known, block_size, wide, *others)


FAULT = Fault(
    name="wide_block_never_crossed",
    origin="vllm#36734",
    in_vllm="Scheduler._mamba_block_aligned_split",
    mistake="the align split waits for a budget as wide as the block, which no step has",
    replaces={"arithmetic.counts:align_chunk": waiting_for_a_boundary},
    breaks=("every_request_can_finish", "step_makes_progress"),
    cluster="hybrid-narrow",
    trace_events=2,
)
