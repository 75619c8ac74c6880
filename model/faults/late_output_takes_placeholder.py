"""#48245: a preemption took the placeholders of a request, and the output that was under way took
them again: the count went below zero."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="late_output_takes_placeholder",
    origin="vllm#48245",
    mistake="the output of a step before the preemption takes a placeholder that is gone",
    replaces=("placeholders_due", lambda reserved, _late: reserved),
    breaks=("placeholders_are_samples_in_flight",),
    cluster="async-preempting",
    trace_events=7,
)
