"""Before vllm#47782, sparse retention kept only the boundary at which the same prompt resumes. It
dropped the state at a shared prefix boundary (vllm#37898). Later prompts with the same prefix hit
nothing, however many came."""

from kvproof.model.arithmetic.algebra import Num, Truth
from kvproof.model.arithmetic.counts import is_retained
from kvproof.model.faults.fault import Fault


def without_boundary(*numbers: Num) -> Truth:
    """The mask as if no prompt had a shared prefix, whose boundary is at index 6."""
    return is_retained(*(*numbers[:6], 0, *numbers[7:]))


FAULT = Fault(
    name="retention_drops_shared_prefix_boundary",
    origin="vllm#47782",
    in_vllm="MambaManager.reachable_block_mask",
    mistake="sparse retention does not keep the blocks at a shared prefix boundary",
    replaces={"arithmetic.counts:is_retained": without_boundary},
    breaks=("repeated_prompt_hits",),
    cluster="sparse-window",
    trace_events=8,
)
