"""Before vllm#49206 the preemption of an earlier running request made the loop skip the next one.
Here the second of the running requests is never served beside the first."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="runner_is_passed_over",
    origin="vllm#49206",
    mistake="the loop over running requests leaves one out",
    replaces=("runners_in_turn", lambda running: (*running[:1], *running[2:])),
    breaks=("room_is_used",),
    cluster="async",
    trace_events=6,
)
