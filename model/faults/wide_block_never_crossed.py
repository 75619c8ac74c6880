"""The align split waits for a token budget that reaches the next block boundary (vllm#36734). If a
block is wider than the budget of a whole step, no step has such a budget, and the request waits for
ever."""

from kvproof.model.arithmetic.algebra import Num, max_
from kvproof.model.arithmetic.counts import align_chunk
from kvproof.model.faults.fault import Fault


def waiting_for_a_boundary(
    start: Num,
    tokens: Num,
    prefill_end: Num,
    known: Num,
    block_size: Num,
    chunk_limit: Num,
    shared_prefix_boundary: Num,
    eagle_drop_tokens: int = 0,
) -> Num:
    """The align split as if every block fitted into one step."""
    limit = max_(chunk_limit, block_size)
    return align_chunk(
        start,
        tokens,
        prefill_end,
        known,
        block_size,
        limit,
        shared_prefix_boundary,
        eagle_drop_tokens,
    )


FAULT = Fault(
    name="wide_block_never_crossed",
    origin="vllm#36734",
    mistake="the align split waits for a budget as wide as the block, which no step has",
    replaces={"arithmetic.counts:align_chunk": waiting_for_a_boundary},
    breaks=("every_request_can_finish", "step_makes_progress"),
    cluster="hybrid-narrow",
    trace_events=2,
)
