"""A request did not step back over the drafts that were rejected (the class of vllm#48245): it
goes on as if their KV were that of its tokens."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.fault import Fault


def no_step_back(end: Num, known: Num, accepted: Num) -> Num:  # noqa: ARG001
    """Where the step ended."""
    return end


FAULT = Fault(
    name="rejected_drafts_are_computed",
    origin="vllm#48245",
    mistake="rejected drafts stay counted as computed",
    replaces=("computed_after_drafts", no_step_back),
    breaks=("placeholders_are_samples_in_flight", "request_reads_its_own_prefix"),
    cluster="drafts",
    trace_events=5,
)
