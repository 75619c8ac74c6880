"""vLLM 0.32.0 on D with a drafter: a load is admitted only if, in each attention group, blocks for
a whole step with drafts are free in addition. The blocks of the load already have room for some of
these tokens. A prompt that fits waits for ever, and so do all requests behind it."""

from kvproof.model.faults.fault import Fault


def step_and_lookahead(drafts: int, ahead: int) -> int:
    """A sampled token, its drafts and the lookahead slots of the drafter."""
    return 1 + drafts + ahead if drafts else 0


FAULT = Fault(
    name="load_keeps_room_for_drafts",
    origin="kvproof, vLLM 0.32.0",
    mistake=(
        "a load waits for the blocks of a whole step with drafts, although its own blocks have room"
    ),
    replaces=("slots_kept_beside_load", step_and_lookahead),
    breaks=("every_request_can_finish",),
    cluster="pd-drafts-tight",
    trace_events=5,
    concerns=lambda cluster: cluster.disaggregated and cluster.decode.drafts > 0,
)
