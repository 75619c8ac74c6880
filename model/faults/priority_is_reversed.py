"""A lower number is served first (#19057). Whoever takes a higher one for better serves, and
spares, the wrong request."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="priority_is_reversed",
    origin="vllm#19057",
    mistake="the job of the highest priority number is served first, and preempted last",
    replaces=("rank", lambda priority, arrival: (-priority, arrival)),
    breaks=("priority_is_kept",),
    cluster="priority",
    trace_events=3,
)
