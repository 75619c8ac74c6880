"""vllm#48245 (review): a preempted request must not run again while a token that was sampled before
the preemption is pending. Otherwise it samples the same position twice, and both tokens are
kept."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="resumes_before_late_output",
    origin="vllm#48245",
    in_vllm="Scheduler.schedule",
    mistake="a preempted request runs again before its pending token has arrived",
    replaces={"reference.features.in_flight:awaits_output": lambda _flights: False},
    breaks=("placeholders_are_samples_in_flight",),
    cluster="hybrid-async",
    trace_events=10,
)
