"""The functions of vLLM that kvproof calls on the cases of its arithmetic. Speculative decoding and
context parallelism are off."""

import functools

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.ranges import at_least, between
from kvproof.model.group_needs import STATE_WINDOW
from tests.functions import called, managers, scheduling, transfers
from tests.functions.function import Function

# Small, so that boundaries of their products are met.
RETAINING = {"block_size": between(1, 2), "units": between(1, 2), "apart": between(0, 2)}


def chunk_of(**numbers: int) -> dict[str, int]:
    """The numbers of a chunk, without a shared prefix."""
    return {**numbers, "boundary": 0}


FUNCTIONS: dict[str, Function] = {
    each.id: each
    for each in (
        Function(
            "tokens_skipped_by_window",
            "SlidingWindowManager.get_num_skipped_tokens",
            lambda **v: counts.tokens_skipped_by_window(**v),
            managers.window_skipped,
        ),
        Function(
            # For no computed tokens vLLM returns -1, and treats it as 0.
            "tokens_skipped_by_state",
            "MambaManager.get_num_skipped_tokens",
            lambda **v: counts.tokens_skipped_by_state(**v),
            managers.state_skipped,
            ranges={"computed": at_least(1)},
        ),
        Function(
            "window_blocks_for_hit",
            "SlidingWindowManager._contiguous_blocks_for_hit",
            lambda **v: counts.window_blocks_for_hit(**v),
            managers.window_hit,
        ),
        Function(
            "serves_a_hit",
            "SlidingWindowManager.reachable_block_mask",
            lambda block, window, block_size, units: (
                (counts.serves_a_hit(block, window, block_size, units * block_size),) * 2
            ),
            managers.mask,
        ),
        Function(
            "retained_in_window",
            "SlidingWindowManager.reachable_block_mask",
            called.retained,
            managers.retained,
            bound=4,
            ranges={"window": between(2, 3), **RETAINING},
        ),
        Function(
            "retained_state",
            "MambaManager.reachable_block_mask",
            functools.partial(called.retained, window=STATE_WINDOW),
            functools.partial(managers.retained, 0),
            bound=4,
            ranges=RETAINING,
        ),
        Function(
            "attention_growth",
            "SingleTypeKVCacheManager.get_num_blocks_to_allocate",
            called.grown,
            functools.partial(managers.growth, "full"),
        ),
        Function(
            "state_growth",
            "MambaManager.get_num_blocks_to_allocate",
            lambda **v: counts.state_blocks_predicted(**v),
            functools.partial(managers.growth, "mamba"),
            given=called.fits,
        ),
        Function(
            "window_admission",
            "SingleTypeKVCacheManager.get_num_blocks_to_allocate",
            called.window_admission,
            managers.window_admission,
            given=called.within_prompt,
            differs={"window_of_loaded_tokens": called.loads_the_whole_prompt},
        ),
        Function(
            "state_admission",
            "MambaManager.get_num_blocks_to_allocate",
            called.state_admission,
            managers.state_admission,
            given=called.one_way,
            differs={"superseded_state_reserved": called.loads_beyond_a_state},
        ),
        Function(
            "counted_after_hit",
            "SingleTypeKVCacheManager.add_local_computed_blocks",
            called.num_cached_blocks,
            managers.num_cached_blocks,
            differs={"null_blocks_counted_as_cached": called.loads_a_block},
            ranges={"loaded": at_least(1)},
        ),
        Function(
            "align_chunk",
            "Scheduler._mamba_block_aligned_split",
            called.aligned_chunk,
            scheduling.aligned_chunk,
            given=called.has_a_prompt,
            also=(
                # A resumed request ends before its last token, inside the block of its start.
                chunk_of(start=4, tokens=1, left=1, resumed=1, block_size=4, room=3),
                # It begins inside the second block, and ends the prefill two blocks on.
                chunk_of(start=3, tokens=4, left=0, resumed=0, block_size=2, room=0),
                # It has the last token of a prompt and a sampled one, in two blocks.
                chunk_of(start=3, tokens=2, left=0, resumed=1, block_size=4, room=2),
            ),
        ),
        Function(
            "longest_hit_tokens",
            "KVCacheManager.get_computed_blocks",
            lambda known, block_size, units: counts.longest_hit_tokens(known, block_size * units),
            scheduling.longest_hit,
        ),
        Function(
            "resumed_at",
            "Scheduler._update_waiting_for_remote_kv",
            lambda **v: counts.resumed_at(**v),
            scheduling.resumed,
            given=lambda loaded, prompt: loaded <= prompt,
            ranges={"loaded": at_least(1)},
        ),
        Function(
            "tokens_loaded_by_decode",
            "NixlBaseConnectorScheduler._get_remote_prefill_token_count",
            lambda **v: counts.tokens_loaded_by_decode(**v),
            transfers.remote_count,
        ),
        Function(
            "prompt_after_truncation",
            "NixlBaseConnectorScheduler._truncate_request_for_prefill",
            called.truncated,
            transfers.truncated,
            ranges={"times": between(1, 3)},
        ),
        Function(
            "window_blocks_offered",
            "NixlBaseConnectorScheduler.get_exchange_clipped_blocks",
            called.window_offer,
            transfers.window_offer,
        ),
        Function(
            "state_slots_moved",
            "NixlBaseConnectorScheduler.get_exchange_clipped_blocks",
            called.state_offer,
            transfers.state_offer,
        ),
        Function(
            "trim_beside_state",
            "NixlBaseConnectorWorker._apply_prefix_caching",
            called.paired,
            functools.partial(transfers.paired, "mamba"),
            given=called.accepted_beside_state,
            bound=12,
        ),
        Function(
            "trim_beside_window",
            "NixlBaseConnectorWorker._apply_prefix_caching",
            called.paired,
            functools.partial(transfers.paired, "window"),
            given=called.something_to_load,
            bound=12,
            differs={
                "longer_list_dies_across_ratios": called.longer_here,
                "end_trim_across_ratios": called.longer_there,
            },
            results={"longer_list_dies_across_ratios": called.dies},
        ),
        Function(
            "logical_block",
            "NixlBaseConnectorWorker._logical_to_kernel_block_ids",
            lambda kernel, ratio: counts.logical_block(kernel, ratio),
            transfers.kernel_block,
        ),
    )
}
