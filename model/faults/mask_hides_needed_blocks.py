"""The mask of blocks worth hashing kept one block fewer than a hit asks for (vllm#44082, with
EAGLE): no hit of that group ever holds."""

from kvproof.model import counts
from kvproof.model.algebra import Num, Truth, div
from kvproof.model.faults.fault import Fault


def one_fewer(block: Num, window: Num, block_size: Num, hit_unit: Num) -> Truth:
    """Whether it is among the blocks that a hit needs, but for the first of them."""
    blocks_per_unit = div(hit_unit, block_size)
    blocks_after = blocks_per_unit - 1 - (block - div(block, blocks_per_unit) * blocks_per_unit)
    return blocks_after < counts.window_blocks_for_hit(window, block_size) - 1


FAULT = Fault(
    name="mask_hides_needed_blocks",
    born_of="vllm#44082",
    mistake="of the blocks that a window's hit needs one is not hashed",
    replaces=("serves_a_hit", one_fewer),
    breaks=("repeated_prompt_hits",),
    cluster="three",
)
