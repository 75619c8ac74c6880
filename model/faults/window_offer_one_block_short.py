"""A bound on the blocks of a window was wrong by one block (vllm#56709, in the offload connector).
Here P offers no block for the unaligned start of the window, and D does not load it."""

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num
from kvproof.model.faults.claims import claims
from kvproof.model.faults.fault import Fault


def aligned(window: Num, block_size: Num) -> Num:
    """The number of blocks of a window that begins at a block boundary."""
    return counts.blocks_for_tokens(window, block_size)


FAULT = Fault(
    name="window_offer_one_block_short",
    origin="vllm#56709",
    in_vllm="NixlBaseConnectorScheduler.get_exchange_clipped_blocks",
    mistake="P offers one window block too few if the window begins inside a block",
    replaces={"arithmetic.counts:window_blocks_offered": aligned},
    breaks=("cached_block_holds_its_key", "request_reads_its_own_prefix"),
    cluster="pd-window-whole",
    trace_events=7,
    refutes=claims("transfer_of_window", "all_is_offered"),
)
