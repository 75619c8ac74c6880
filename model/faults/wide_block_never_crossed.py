"""The align split waits for a budget that reaches the next boundary (vllm#36734): a block wider
than the budget of a whole step is never crossed, and its request waits for ever."""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, max_
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
    """As if every block fitted into a step."""
    limit = max_(chunk_limit, block_size)
    return counts.align_chunk(
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
    mistake="a block wider than the budget of a step is waited for, and never crossed",
    replaces=("align_chunk", waiting_for_a_boundary),
    breaks=("every_request_can_finish", "step_makes_progress"),
    cluster="hybrid-narrow",
    trace_events=2,
)
