"""A bound on the blocks of a window was wrong by one block (vllm#56709, in the offload connector).
Here a hit is served although the first block that the next token reads is missing."""

from kvproof.model.arithmetic.algebra import Num, div
from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault


def rounded_down(window: Num, block_size: Num) -> Num:
    """Full blocks of the window only."""
    return div(window - 1, block_size)


FAULT = Fault(
    name="window_hit_one_block_short",
    origin="vllm#56709",
    in_vllm="SlidingWindowManager._contiguous_blocks_for_hit",
    mistake="a hit needs one window block fewer than the next token reads",
    replaces={"arithmetic.counts:window_blocks_for_hit": rounded_down},
    breaks=("null_block_is_nobody",),
    cluster="window-wide",
    trace_events=5,
    refutes=claims("window", "null_is_not_needed"),
)
