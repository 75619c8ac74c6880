"""#44243 took `max` over the groups' hits: what attention had lost was taken for computed because a
Mamba state behind it survived."""

from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="deepest_group_wins",
    origin="vllm#46453",
    mistake="the hit is as long as the longest of any group",
    replaces=("hit_holds", any),
    breaks=("hit_holds_in_every_group",),
    cluster="hybrid-evicting",
    trace_events=8,
    refutes=claims("full", "full_attention_keeps_all"),
    refutes_in_turn=claims("full", "hashed_are_counted"),
)
