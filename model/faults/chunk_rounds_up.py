"""The align split for a block wider than the token budget (compare vllm#36734), with the opposite
mistake: the chunk is extended to the end of its block. The step then has more tokens than its
budget, and the scheduler fails its own check."""

from kvproof.model.arithmetic.algebra import Num, ceil_div, if_, min_
from kvproof.model.arithmetic.counts import align_chunk
from kvproof.model.faults.fault import Fault


def to_the_end_of_its_block(
    start: Num, tokens: Num, prefill_end: Num, known: Num, block_size: Num, *others: Num
) -> Num:
    """Extend the chunk to the next block boundary or to the end of the prefill."""
    rounded = min_(ceil_div(start + tokens, block_size) * block_size, prefill_end) - start
    longer = if_(start + tokens < prefill_end, rounded, tokens)
    return align_chunk(start, longer, prefill_end, known, block_size, *others)


FAULT = Fault(
    name="chunk_rounds_up",
    origin="vllm#36734",
    in_vllm="Scheduler._mamba_block_aligned_split",
    mistake="a chunk is extended to the end of its block, beyond the token budget of the step",
    replaces={"arithmetic.counts:align_chunk": to_the_end_of_its_block},
    breaks=("engine_survives",),
    cluster="hybrid-chunked",
    trace_events=2,
)
