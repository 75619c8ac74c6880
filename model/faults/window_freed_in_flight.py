"""vllm#47728: the number of computed tokens increases when a step is dispatched. According to this
number, the window had left blocks that the step in flight still read."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.fault import Fault


def all_computed(computed: Num, in_flight: Num) -> Num:  # noqa: ARG001
    """All computed tokens, also those of steps that have not ended."""
    return computed


FAULT = Fault(
    name="window_freed_in_flight",
    origin="vllm#47728",
    in_vllm="KVCacheManager.remove_skipped_blocks",
    mistake="blocks behind a window are freed according to tokens that are still being computed",
    replaces={"arithmetic.counts:settled_tokens": all_computed},
    breaks=("settled_frees",),
    cluster="async",
    trace_events=5,
)
