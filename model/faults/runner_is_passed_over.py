"""Before vllm#49206, the preemption of an earlier request made the loop over running requests skip
the next request. Here the second running request is never scheduled together with the first."""

from collections.abc import Sequence

from kvproof.model.faults.fault import Fault
from kvproof.model.reference.scheduling.greedy import Greedy, serve_running


def without_the_second(work: Greedy, running: Sequence[str]) -> bool:
    """The loop does not look at the second request."""
    return serve_running(work, (*running[:1], *running[2:]))


FAULT = Fault(
    name="runner_is_passed_over",
    origin="vllm#49206",
    in_vllm="Scheduler.schedule",
    mistake="the loop over running requests skips one request",
    replaces={"reference.scheduling.greedy:serve_running": without_the_second},
    breaks=("room_is_used",),
    cluster="async",
    trace_events=6,
)
