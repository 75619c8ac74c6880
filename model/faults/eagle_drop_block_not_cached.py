"""The mask of blocks worth hashing left out the block after a boundary, which a lookup with an
EAGLE drafter must match (vllm#44082). No hit of this window group is possible."""

from kvproof.model.arithmetic.algebra import Num, Truth
from kvproof.model.arithmetic.counts import serves_a_hit
from kvproof.model.faults.fault import Fault


def without_it(
    block: Num,
    window: Num,
    block_size: Num,
    hit_unit: Num,
    eagle_drop_blocks: int = 0,  # noqa: ARG001
) -> Truth:
    """The mask as if there were no drafter."""
    return serves_a_hit(block, window, block_size, hit_unit)


FAULT = Fault(
    name="eagle_drop_block_not_cached",
    origin="vllm#44082",
    in_vllm="SlidingWindowManager.reachable_block_mask",
    mistake="the block after a boundary is not hashed, although a hit with a drafter must match it",
    replaces={"arithmetic.counts:serves_a_hit": without_it},
    breaks=("repeated_prompt_hits",),
    cluster="window-drafts",
    trace_events=5,
)
