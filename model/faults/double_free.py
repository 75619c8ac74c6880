"""vllm#42571: one batch of freed blocks has the same block twice."""

from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="double_free",
    origin="vllm#42571",
    mistake="a freed block loses two references",
    replaces=("references_dropped", lambda entries: 2 * entries),
    breaks=(
        "pool_adds_up",
        "references_are_exact",
    ),
    cluster="full",
    trace_events=3,
    refutes=claims("pool", "held_is_referenced"),
)
