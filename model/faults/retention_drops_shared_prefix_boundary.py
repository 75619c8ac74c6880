"""Before vllm#47782, sparse retention kept only the boundary at which the same prompt resumes. It
dropped the state at a shared prefix boundary (vllm#37898). Later prompts with the same prefix hit
nothing, however many came."""

from kvproof.model.arithmetic.algebra import Num, Truth
from kvproof.model.arithmetic.counts import is_retained
from kvproof.model.faults.fault import Fault


def without_boundary(
    block: Num,
    window: Num,
    block_size: Num,
    hit_unit: Num,
    interval: Num,
    prompt: Num,
    shared_prefix_boundary: Num,  # noqa: ARG001
    *drafted: int,
) -> Truth:
    """The mask as if no prompt had a shared prefix."""
    return is_retained(block, window, block_size, hit_unit, interval, prompt, 0, *drafted)


FAULT = Fault(
    name="retention_drops_shared_prefix_boundary",
    origin="vllm#47782",
    mistake="sparse retention does not keep the blocks at a shared prefix boundary",
    replaces={"arithmetic.counts:is_retained": without_boundary},
    breaks=("repeated_prompt_hits",),
    cluster="sparse-window",
    trace_events=8,
)
