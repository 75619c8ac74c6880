"""Compare vllm#53945 and vllm#52216: sparse retention keeps blocks that no lookup can use. Here it
keeps the boundary at the end of a prompt. A hit must leave one token to compute, so a repeated
prompt of full blocks can only hit an earlier boundary, and it finds nothing there."""

from kvproof.model.arithmetic.algebra import Num, Truth
from kvproof.model.arithmetic.counts import is_retained
from kvproof.model.faults.fault import Fault


def at_the_very_end(*numbers: Num) -> Truth:
    """The mask as if a hit could cover the whole prompt, whose tokens are at index 5."""
    return is_retained(*(*numbers[:5], numbers[5] + 1, *numbers[6:]))


FAULT = Fault(
    name="retained_boundary_out_of_reach",
    origin="vllm#53945",
    in_vllm="MambaManager.reachable_block_mask",
    mistake="sparse retention keeps the boundary at the end of a prompt, which no hit may reach",
    replaces={"arithmetic.counts:is_retained": at_the_very_end},
    breaks=("repeated_prompt_hits",),
    cluster="sparse-three",
    trace_events=7,
)
