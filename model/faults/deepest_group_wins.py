"""vllm#44243 used the maximum of the groups' hits. A Mamba state had survived the eviction of
attention blocks before it, and vLLM treated these attention tokens as computed."""

from kvproof.model import config
from kvproof.model.arithmetic.algebra import Num, Truth, both
from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.blocks import groups
from kvproof.model.state import Engine


def in_some_group(cfg: config.EngineConfig, engine: Engine, tokens: str, hit: int) -> bool:
    """Whether any group alone can serve the hit."""
    return any(groups.resident(cfg, engine, index, tokens, hit) for index in range(len(cfg.groups)))


def attention_blocks(kind: str, held: Num, lacking: Num) -> Truth:
    """Any of the attention blocks, where the hit holds in another group only. Lacking blocks in
    other groups are not modelled."""
    return both(lacking >= 0, lacking <= held) if kind == "full" else lacking == 0


FAULT = Fault(
    name="deepest_group_wins",
    origin="vllm#46453",
    in_vllm="HybridKVCacheCoordinator.find_longest_cache_hit",
    mistake="the hit is the longest hit of any group",
    replaces={
        "reference.blocks.prefix_hits:holds": in_some_group,
        "counting_abstraction.table_system:may_lack": attention_blocks,
    },
    breaks=("hit_holds_in_every_group",),
    cluster="hybrid-evicting",
    also_in=("pd-superseding", "pd-remnant"),
    trace_events=8,
    refutes=claims("full", "full_attention_keeps_all"),
    refutes_in_turn=claims("full", "hashed_are_counted"),
)
