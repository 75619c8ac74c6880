"""The align split of a block wider than the budget (the class of vllm#36734), got wrong the other
way round: the chunk is lengthened to the end of its block. More tokens are scheduled than a step
may compute, and the scheduler dies on its own check of the budget."""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, ceil_div, if_, min_
from kvproof.model.faults.fault import Fault


def to_the_end_of_its_block(
    start: Num,
    tokens: Num,
    prefill_end: Num,
    known: Num,
    block_size: Num,
    chunk_limit: Num,
    shared_prefix_boundary: Num,
    eagle_drop_tokens: int = 0,
) -> Num:
    """Up to the next boundary, or to the end of its prefill."""
    rounded = min_(ceil_div(start + tokens, block_size) * block_size, prefill_end) - start
    longer = if_(start + tokens < prefill_end, rounded, tokens)
    return counts.align_chunk(
        start,
        longer,
        prefill_end,
        known,
        block_size,
        chunk_limit,
        shared_prefix_boundary,
        eagle_drop_tokens,
    )


FAULT = Fault(
    name="chunk_rounds_up",
    origin="vllm#36734",
    mistake="a chunk is lengthened to the end of its block, beyond the budget of the step",
    replaces=("align_chunk", to_the_end_of_its_block),
    breaks=("engine_survives",),
    cluster="hybrid-chunked",
    trace_events=2,
)
