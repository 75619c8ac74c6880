"""The mask of blocks worth hashing kept one block fewer than a hit needs (vllm#44082, with EAGLE).
No hit of this group is possible."""

from kvproof.model.arithmetic.algebra import Num, Truth
from kvproof.model.arithmetic.counts import serves_a_hit
from kvproof.model.faults.fault import Fault


def one_fewer(
    block: Num, window: Num, block_size: Num, hit_unit: Num, eagle_drop_blocks: int = 0
) -> Truth:
    """The mask of a window that is narrower by one block."""
    return serves_a_hit(block, window - block_size, block_size, hit_unit, eagle_drop_blocks)


FAULT = Fault(
    name="mask_hides_needed_blocks",
    origin="vllm#44082",
    in_vllm="SlidingWindowManager.reachable_block_mask",
    mistake="one of the blocks that a hit in a window group needs is not hashed",
    replaces={"arithmetic.counts:serves_a_hit": one_fewer},
    breaks=("repeated_prompt_hits",),
    cluster="three",
    trace_events=7,
)
