"""The mask of blocks worth hashing kept one block fewer than a hit asks for (vllm#44082, with
EAGLE): no hit of that group ever holds."""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, Truth
from kvproof.model.faults.fault import Fault


def one_fewer(
    block: Num, window: Num, block_size: Num, hit_unit: Num, eagle_drop_blocks: int = 0
) -> Truth:
    """As if the window were a block narrower."""
    return counts.serves_a_hit(block, window - block_size, block_size, hit_unit, eagle_drop_blocks)


FAULT = Fault(
    name="mask_hides_needed_blocks",
    origin="vllm#44082",
    mistake="of the blocks that a window's hit needs one is not hashed",
    replaces=("serves_a_hit", one_fewer),
    breaks=("repeated_prompt_hits",),
    cluster="three",
    trace_events=7,
)
