"""All proof obligations, one line for each."""

from kvproof.proofs import (
    align_split,
    caching,
    growth,
    regions,
    transfer,
    trimming,
    windows,
)
from kvproof.proofs.obligation import Obligation

OBLIGATIONS: dict[str, Obligation] = {
    each.id: each
    for each in (
        transfer.truncated_once,
        transfer.truncation_is_bounded,
        transfer.same_backoff,
        transfer.delivered_is_counted,
        transfer.decode_owns_the_last_token,
        caching.counter_is_the_local_hit,
        caching.every_full_block_cached_once,
        caching.longest_hit_leaves_a_token,
        caching.hashed_blocks_serve_hits,
        trimming.trim_equal_counts,
        trimming.trim_equal_positions,
        trimming.trim_covers_both,
        trimming.trim_equal_tokens,
        trimming.one_state_is_paired,
        align_split.chunk_within_requested,
        align_split.whole_budget_makes_progress,
        align_split.chunk_waits_only_for_a_boundary,
        align_split.chunk_ends_on_boundary,
        align_split.chunk_stops_where_others_resume,
        align_split.chunk_closes_its_block_first,
        align_split.legal_chunk_is_left_alone,
        windows.skipped_is_unattended,
        windows.skipped_block_is_unattended,
        windows.window_hit_is_enough,
        windows.window_offer_is_enough,
        windows.window_of_a_load_is_enough,
        windows.running_state_is_kept,
        growth.growth_is_exact,
        growth.room_is_used_first,
        growth.state_growth_is_one,
        regions.end_trim_is_right_where,
        regions.counting_before_slicing_is_no_change_where,
        regions.null_in_a_hit_is_what_is_skipped,
        regions.attention_takes_what_is_predicted,
        regions.state_takes_what_is_predicted,
    )
}
