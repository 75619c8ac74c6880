"""vllm#48245: a preemption removed the placeholders of a request. The pending output of the request
removed them a second time, and the count became negative."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="late_output_takes_placeholder",
    origin="vllm#48245",
    in_vllm="AsyncScheduler._update_request_with_output",
    mistake=(
        "output from before a preemption removes a placeholder that the preemption already removed"
    ),
    replaces={"reference.features.in_flight:placeholders_due": lambda reserved, _late: reserved},
    breaks=("placeholders_are_samples_in_flight",),
    cluster="async-preempting",
    trace_events=7,
)
