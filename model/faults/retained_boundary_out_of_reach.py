"""Compare vllm#53945 and vllm#52216: sparse retention keeps blocks that no lookup can use. Here it
keeps the boundary at the end of a prompt. A hit must leave one token to compute, so a repeated
prompt of full blocks can only hit an earlier boundary, and it finds nothing there."""

from kvproof.model.arithmetic.algebra import Num, Truth
from kvproof.model.arithmetic.counts import is_retained
from kvproof.model.faults.fault import Fault


def at_the_very_end(
    block: Num,
    window: Num,
    block_size: Num,
    hit_unit: Num,
    interval: Num,
    prompt: Num,
    shared_prefix_boundary: Num,
    *drafted: int,
) -> Truth:
    """The mask as if a hit could cover the whole prompt."""
    kept = (block, window, block_size, hit_unit, interval)
    return is_retained(*kept, prompt + 1, shared_prefix_boundary, *drafted)


FAULT = Fault(
    name="retained_boundary_out_of_reach",
    origin="vllm#53945",
    mistake="sparse retention keeps the boundary at the end of a prompt, which no hit may reach",
    replaces={"arithmetic.counts:is_retained": at_the_very_end},
    breaks=("repeated_prompt_hits",),
    cluster="sparse-three",
    trace_events=7,
)
