"""D told P of the end of its read by a request id of its own, which P did not know (vllm#36958). P
keeps the blocks of a transfer that is over."""

from kvproof.model.faults.claims import TRANSFERS, claims
from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="read_is_not_reported",
    origin="vllm#36958",
    mistake="P does not recognise the news that D has read, and keeps the blocks",
    replaces=("reported_id", lambda name: f"{name} of D"),
    breaks=("every_request_can_finish",),
    cluster="pd",
    trace_events=12,
    refutes=claims(TRANSFERS, "counts_are_none_when_over"),
)
