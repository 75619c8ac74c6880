"""The class of vllm#53945 and vllm#52216: what sparse retention keeps no lookup asks for.
Here the boundary at the end of a prompt is kept; but a hit leaves a token to compute, so a prompt
of whole blocks that is sent again may only hit a boundary earlier, and finds nothing."""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, Truth
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
    """As if a hit could cover the whole prompt."""
    kept = (block, window, block_size, hit_unit, interval)
    return counts.is_retained(*kept, prompt + 1, shared_prefix_boundary, *drafted)


FAULT = Fault(
    name="retained_boundary_out_of_reach",
    origin="vllm#53945",
    mistake="sparse retention keeps the boundary at the end of a prompt, which no hit may reach",
    replaces=("is_retained", at_the_very_end),
    breaks=("repeated_prompt_hits",),
    cluster="sparse-three",
    trace_events=7,
)
