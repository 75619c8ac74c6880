"""A request continued from the state after all its drafts, the rejected drafts included (vllm#42792
and vllm#57128). The answer had wrong tokens, and nothing reported it."""

from kvproof.model.arithmetic import counts
from kvproof.model.faults.fault import Fault


def after_all_drafts(size: int, known: int, end: int, accepted: int) -> int:
    """The place of the state after all drafts of the step."""
    running, boundary = (end - 1) // size, int(counts.round_down(known + accepted, size))
    own = boundary > known and boundary // size - 1 == running
    return running if own else running + max(end - known, 0)


FAULT = Fault(
    name="state_of_rejected_drafts",
    origin="vllm#57128",
    mistake="a request continues from the state after rejected drafts",
    replaces={"draft_memory:continued_from": after_all_drafts},
    breaks=("state_read_is_state_at_computed",),
    cluster="hybrid-drafts",
    trace_events=8,
)
