"""Until vllm#47782 sparse retention kept only the boundary at which the same prompt resumes. The
state that a prompt left where it parted from another one (vllm#37898) was not cached, so that the
siblings after it hit nothing, however many came."""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, Truth
from kvproof.model.faults.fault import Fault


def without_junction(
    block: Num,
    window: Num,
    block_size: Num,
    hit_unit: Num,
    interval: Num,
    prompt: Num,
    shared_prefix_boundary: Num,  # noqa: ARG001
    *drafted: int,
) -> Truth:
    """As if prompts had not been seen to part."""
    return counts.is_retained(block, window, block_size, hit_unit, interval, prompt, 0, *drafted)


FAULT = Fault(
    name="retention_drops_shared_prefix_boundary",
    origin="vllm#47782",
    mistake="sparse retention does not keep what is cached where two prompts part",
    replaces=("is_retained", without_junction),
    breaks=("repeated_prompt_hits",),
    cluster="sparse-window",
    trace_events=8,
)
