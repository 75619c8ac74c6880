"""vllm#44243 used the maximum of the groups' hits. A Mamba state had survived the eviction of
attention blocks before it, and vLLM treated these attention tokens as computed."""

from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="deepest_group_wins",
    origin="vllm#46453",
    mistake="the hit is the longest hit of any group",
    replaces=("hit_holds", any),
    breaks=("hit_holds_in_every_group",),
    cluster="hybrid-evicting",
    also_in=("pd-superseding", "pd-remnant"),
    trace_events=8,
    refutes=claims("full", "full_attention_keeps_all"),
    refutes_in_turn=claims("full", "hashed_are_counted"),
)
