"""A request did not subtract the rejected drafts from its computed tokens (compare vllm#48245). It
continues as if the KV of these drafts were the KV of its tokens."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.fault import Fault


def no_step_back(end: Num, known: Num, accepted: Num) -> Num:  # noqa: ARG001
    """The end of the step."""
    return end


FAULT = Fault(
    name="rejected_drafts_are_computed",
    origin="vllm#48245",
    in_vllm="Scheduler.update_from_output",
    mistake="rejected drafts stay counted as computed tokens",
    replaces={"arithmetic.counts:computed_after_drafts": no_step_back},
    breaks=("placeholders_are_samples_in_flight", "request_reads_its_own_prefix"),
    cluster="drafts",
    trace_events=5,
)
