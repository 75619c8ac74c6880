"""What vLLM 0.32.0 does on a decode node with a drafter: a load is let in only where blocks for a
whole step with drafts are free beside it, in each attention group, though its own blocks have room
for some of these tokens. A prompt that fits waits for ever, and so do all that came after it."""

from kvproof.model.faults.fault import Fault


def step_and_lookahead(drafts: int, ahead: int) -> int:
    """A sampled token, its drafts, and what the drafter writes after them."""
    return 1 + drafts + ahead if drafts else 0


FAULT = Fault(
    name="load_keeps_room_for_drafts",
    origin="kvproof, vLLM 0.32.0",
    mistake="a load waits for the blocks of a step with drafts, whatever room its own have",
    replaces=("slots_kept_beside_load", step_and_lookahead),
    breaks=("every_request_can_finish",),
    cluster="pd-drafts-tight",
    trace_events=4,
    concerns=lambda cluster: cluster.disaggregated and cluster.decode.drafts > 0,
)
