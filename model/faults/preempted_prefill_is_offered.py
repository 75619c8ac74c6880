"""vllm#50297: P preempted a request while its last token was in flight. The token arrived, ended
the request, and P offered blocks that the preemption had freed."""

from kvproof.model.faults.fault import Fault
from kvproof.model.state import LATE

FAULT = Fault(
    name="preempted_prefill_is_offered",
    origin="vllm#50297",
    in_vllm="Scheduler._preempt_request",
    mistake="P takes the last token of a request that it preempted, and offers freed blocks",
    replaces={"reference.features.in_flight:fate_of_preempted": lambda _produces: LATE},
    breaks=("offer_has_tokens",),
    cluster="pd-roles-preempting",
    trace_events=5,
)
