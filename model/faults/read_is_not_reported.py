"""vllm#36958: D reported the end of its read with its own request id, which P did not know. P kept
the blocks of a completed transfer."""

from kvproof.model.faults.claims import TRANSFERS, claims
from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="read_is_not_reported",
    origin="vllm#36958",
    mistake="P does not recognise the report that D has read the blocks, and keeps them",
    replaces=("reported_id", lambda name: f"{name} of D"),
    breaks=("every_request_can_finish",),
    cluster="pd",
    trace_events=12,
    refutes=claims(TRANSFERS, "counts_are_none_when_over"),
)
