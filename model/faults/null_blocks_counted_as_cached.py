"""The first change of vllm#42547. vLLM 0.32.0 still counts null placeholders as cached. For Mamba
and window groups the placeholders are positions that are never hashed, so the wrong count does no
harm there. It does harm in any group in which a later lookup can ask for a skipped block."""

from kvproof.model.arithmetic.algebra import Num, max_
from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault


def counts_placeholders(hit_blocks: Num, skipped_blocks: Num) -> Num:
    """The length of the table so far, placeholders included."""
    return max_(hit_blocks, skipped_blocks)


FAULT = Fault(
    name="null_blocks_counted_as_cached",
    origin="vllm#42547",
    in_vllm="SingleTypeKVCacheManager.add_local_computed_blocks",
    mistake="null placeholders before the tokens of a load are counted as cached",
    replaces={"arithmetic.counts:blocks_counted_after_hit": counts_placeholders},
    breaks=("counter_counts_only_cached",),
    cluster="pd",
    trace_events=7,
    refutes=claims(("window", "mamba", "state"), "counter_counts_full_blocks"),
)
