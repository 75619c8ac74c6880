"""The counter of vllm#42547 with the opposite mistake: the blocks of a hit are not counted as
cached. They are cached a second time, and the pool fails its own check. No public report of this
mistake is known."""

from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.claims import CACHING, claims
from kvproof.model.faults.fault import Fault


def from_the_start(hit_blocks: Num, skipped_blocks: Num) -> Num:  # noqa: ARG001
    """Count no block of the hit."""
    return 0


FAULT = Fault(
    name="hit_not_counted",
    origin="vllm#42547",
    in_vllm="SingleTypeKVCacheManager.add_local_computed_blocks",
    mistake="the cached blocks of a hit are not counted as cached, and are hashed twice",
    replaces={"arithmetic.counts:blocks_counted_after_hit": from_the_start},
    breaks=("engine_survives",),
    cluster="full",
    trace_events=3,
    refutes=claims("full", "full_attention_keeps_all") | claims(CACHING, "hashed_are_counted"),
)
