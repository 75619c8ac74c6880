"""With an EAGLE drafter, the hit included the last matched block (vllm#17137). The drafter's layers
then read what they wrote for a prompt that continues with another token."""

from kvproof.model.faults.fault import Fault

FAULT = Fault(
    name="last_match_not_dropped",
    origin="vllm#17137",
    in_vllm="HybridKVCacheCoordinator.find_longest_cache_hit",
    mistake="a hit includes the last matched block, although a drafter has layers in this group",
    replaces={"reference.blocks.groups:matched_and_dropped": lambda _length, _block_size: ()},
    breaks=("hit_holds_in_every_group",),
    cluster="drafts",
    trace_events=7,
)
