"""#47728: the computed tokens run ahead when a step is dispatched. Judged by them, a window had
left blocks behind that the step in flight still read."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.fault import Fault


def all_computed(computed: Num, in_flight: Num) -> Num:  # noqa: ARG001
    """The computed tokens, whether their steps have ended or not."""
    return computed


FAULT = Fault(
    name="window_freed_in_flight",
    origin="vllm#47728",
    mistake="what a window has left behind is judged by tokens that are still being computed",
    replaces=("settled_tokens", all_computed),
    breaks=("settled_frees",),
    cluster="async",
    trace_events=5,
)
