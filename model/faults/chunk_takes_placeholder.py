"""vllm#57562: a step computed a part of a prompt and sampled no token. Its output still removed a
placeholder, which the step had not reserved."""

from kvproof.model.faults.fault import Fault
from kvproof.model.reference.scheduling.overlap import without_placeholder
from kvproof.model.state import Engine, Flight


def as_if_sampled(engine: Engine, flight: Flight) -> Engine:
    """Remove the placeholder of a sampled token, also of a part that samples none."""
    return without_placeholder(engine, flight._replace(samples=True))


FAULT = Fault(
    name="chunk_takes_placeholder",
    origin="vllm#57562",
    in_vllm="AsyncScheduler._update_request_with_output",
    mistake="the output of a chunk that samples no token removes a placeholder",
    replaces={"reference.scheduling.overlap:without_placeholder": as_if_sampled},
    breaks=("placeholders_are_samples_in_flight",),
    cluster="async",
    trace_events=3,
)
