"""The request with the lowest priority number is admitted first (vllm#19057). A scheduler that
takes a higher number for more urgent admits and preempts the wrong requests."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="priority_is_reversed",
    origin="vllm#19057",
    mistake="the job with the highest priority number is admitted first and preempted last",
    replaces={
        "reference.scheduling.service_order:rank": lambda priority, arrival: (-priority, arrival)
    },
    breaks=("priority_is_kept",),
    cluster="priority",
    trace_events=3,
)
