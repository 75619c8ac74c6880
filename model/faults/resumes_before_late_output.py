"""A preempted request must not run again while a token sampled before the preemption is still to
come: it would sample the same position, and both tokens would be kept (#48245, review)."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="resumes_before_late_output",
    origin="vllm#48245",
    mistake="a preempted request runs again before the token of its last step has come",
    replaces=("awaits_output", lambda _flights: False),
    breaks=("placeholders_are_samples_in_flight",),
    cluster="hybrid-async",
    trace_events=10,
)
