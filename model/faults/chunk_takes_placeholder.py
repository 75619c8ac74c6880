"""vllm#57562: a step computed a part of a prompt and sampled no token. Its output still removed a
placeholder, which the step had not reserved."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="chunk_takes_placeholder",
    origin="vllm#57562",
    mistake="the output of a chunk that samples no token removes a placeholder",
    replaces=("placeholders_taken", lambda _samples: 1),
    breaks=("placeholders_are_samples_in_flight",),
    cluster="async",
    trace_events=3,
)
