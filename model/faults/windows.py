"""Sliding windows: which blocks a hit needs, which are freed behind the window, and which are
erased."""

from collections.abc import Sequence

from kvproof.model import config
from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, Truth, div, max_
from kvproof.model.arithmetic.counts import serves_a_hit
from kvproof.model.faults.fault import fault


@fault(
    "one of the blocks that a hit in a window group needs is not hashed",
    origin="vllm#44082",
    in_vllm="SlidingWindowManager.reachable_block_mask",
    replaces="arithmetic.counts:serves_a_hit",
    breaks="repeated_prompt_hits",
    cluster="three",
)
def mask_hides_needed_blocks(
    block: Num, window: Num, block_size: Num, hit_unit: Num, eagle_drop_blocks: int = 0
) -> Truth:
    """The mask of blocks worth hashing kept one block fewer than a hit needs (vllm#44082, with
    EAGLE). No hit of this group is possible. Here the mask is that of a window that is narrower
    by one block."""
    return serves_a_hit(block, window - block_size, block_size, hit_unit, eagle_drop_blocks)


@fault(
    "a hit needs one window block fewer than the next token reads",
    origin="vllm#56709",
    in_vllm="SlidingWindowManager._contiguous_blocks_for_hit",
    replaces="arithmetic.counts:window_blocks_for_hit",
    breaks="null_block_is_nobody",
    cluster="window-wide",
)
def window_hit_one_block_short(window: Num, block_size: Num) -> Num:
    """A bound on the blocks of a window was wrong by one block (vllm#56709, in the offload
    connector). Here a hit is served although the first block that the next token reads is
    missing: only full blocks of the window are counted."""
    return div(window - 1, block_size)


@fault(
    "blocks behind the window are freed one token too early",
    origin="vllm#47728",
    in_vllm="SlidingWindowManager.get_num_skipped_tokens",
    replaces="arithmetic.counts:tokens_skipped_by_window",
    breaks="null_block_is_nobody",
    cluster="window",
)
def window_freed_too_soon(computed: Num, window: Num) -> Num:
    """vLLM freed blocks according to the scheduled tokens, not the processed tokens
    (vllm#47728). Here the window moves one token too early."""
    return max_(computed - window + 2, 0)


@fault(
    "blocks behind a window are freed according to tokens that are still being computed",
    origin="vllm#47728",
    in_vllm="KVCacheManager.remove_skipped_blocks",
    replaces="arithmetic.counts:settled_tokens",
    breaks="settled_frees",
    cluster="async",
)
def window_freed_in_flight(computed: Num, in_flight: Num) -> Num:  # noqa: ARG001
    """vllm#47728: the number of computed tokens increases when a step is dispatched. According
    to this number, the window had left blocks that the step in flight still read."""
    return computed


@fault(
    "the needed window is computed from the loaded tokens, not from the token that is "
    "computed again",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="SlidingWindowManager.get_num_skipped_tokens",
    replaces="arithmetic.counts:needed_from_load",
    breaks="null_block_is_nobody",
    cluster="pd-window",
)
def window_of_loaded_tokens(loaded: Num, prompt: Num) -> Num:  # noqa: ARG001
    """vLLM 0.32.0, found by kvproof. D loads all N prompt tokens of a model with a sliding
    window and computes the last token again, to sample from it. Both sides compute the needed
    window from N computed tokens, but token N, computed again, reads one token further to the
    left. If a block ends exactly there, that block is freed on P and null on D, and D attends to
    the null block."""
    return loaded


@fault(
    "P offers one window block too few if the window begins inside a block",
    origin="vllm#56709",
    in_vllm="NixlBaseConnectorScheduler.get_exchange_clipped_blocks",
    replaces="arithmetic.counts:window_blocks_offered",
    breaks=("cached_block_holds_its_key", "request_reads_its_own_prefix"),
    cluster="pd-window-whole",
)
def window_offer_one_block_short(window: Num, block_size: Num) -> Num:
    """A bound on the blocks of a window was wrong by one block (vllm#56709, in the offload
    connector). Here P offers no block for the unaligned start of the window, and D does not load
    it."""
    return counts.blocks_for_tokens(window, block_size)


@fault(
    "new blocks of a window group are not erased",
    origin="vllm#51749",
    replaces="reference.scheduling.scheduler:blocks_to_zero",
    breaks="new_blocks_are_zeroed",
    cluster="three",
)
def windows_are_not_zeroed(
    group: config.Group, blocks: Sequence[int], loaded: Sequence[int]
) -> list[int]:
    """Before vllm#51749 only blocks of full attention were erased, although window layers read
    whole blocks too."""
    return [b for b in blocks if b not in loaded and group.kind == "full"]
