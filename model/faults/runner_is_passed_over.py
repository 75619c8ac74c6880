"""Before vllm#49206, the preemption of an earlier request made the loop over running requests skip
the next request. Here the second running request is never scheduled together with the first."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="runner_is_passed_over",
    origin="vllm#49206",
    mistake="the loop over running requests skips one request",
    replaces=("runners_in_turn", lambda running: (*running[:1], *running[2:])),
    breaks=("room_is_used",),
    cluster="async",
    trace_events=6,
)
