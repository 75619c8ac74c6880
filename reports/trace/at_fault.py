"""The function of vLLM that is at fault in a trace, where that is known: most faults and most known
findings are made in one function of vLLM. A hang is refused by the function that the waiting
request needs."""

from collections.abc import Iterable

from kvproof.model.deviation import Deviation

_SPLIT = "Scheduler._mamba_block_aligned_split"
_PREDICTED = "SingleTypeKVCacheManager.get_num_blocks_to_allocate"
_STATE_PREDICTED = "MambaManager.get_num_blocks_to_allocate"
_PAIRED = "NixlBaseConnectorWorker._apply_prefix_caching"
_HIT = "HybridKVCacheCoordinator.find_longest_cache_hit"
_MASK = "SlidingWindowManager.reachable_block_mask"
_STATE_MASK = "MambaManager.reachable_block_mask"

OF_FAULT: dict[str, str] = {
    "abort_frees_under_load": "Scheduler.finish_requests",
    "aborted_load_never_frees": "Scheduler._update_from_kv_xfer_finished",
    "align_split_during_load": _SPLIT,
    "align_split_refuses_external": _SPLIT,
    "blocks_after_the_boundary_not_cached": "HybridKVCacheCoordinator.cache_blocks",
    "blocks_wait_for_one_more_step": "Scheduler._free_request_blocks",
    "cached_state_overwritten": "MambaManager.allocate_new_blocks",
    "chunk_rounds_up": _SPLIT,
    "chunk_takes_placeholder": "AsyncScheduler._update_request_with_output",
    "continued_session_is_not_counted": "Scheduler._update_request_as_session",
    "copied_before_filled": "Scheduler.schedule",
    "copy_not_predicted": _STATE_PREDICTED,
    "copy_of_load_not_reserved": "Scheduler._request_remaining_blocks",
    "decode_loads_whole_prompt": "NixlBaseConnectorScheduler._get_remote_prefill_token_count",
    "deeper_state_gives_up_hit": "Scheduler._get_local_prefix_cache_hit",
    "deepest_group_wins": _HIT,
    "deferred_requests_take_places": "Scheduler.schedule",
    "double_free": "BlockPool.free_blocks",
    "drafts_are_cached": "KVCacheManager.allocate_slots",
    "eagle_drop_before_the_last_token": "UnitaryKVCacheCoordinator.find_longest_cache_hit",
    "eagle_drop_block_not_cached": _MASK,
    "embeddings_not_loaded": "NixlBaseConnectorScheduler._get_remote_prefill_token_count",
    "embeddings_not_truncated": "NixlBaseConnectorScheduler._truncate_request_for_prefill",
    "end_of_prompt_cached_in_wider_block": "FullAttentionManager.cache_blocks",
    "end_trim_across_ratios": _PAIRED,
    "evicted_key_stays": "BlockPool._maybe_evict_cached_block",
    "begun_block_given_up_by_window": "KVCacheManager.truncate_computed_blocks",
    "extra_keys_left_out": "Request.update_block_hashes",
    "failed_load_holds_the_queue": "Scheduler.schedule",
    "failed_load_stays_cached": "Scheduler._handle_invalid_blocks",
    "failed_load_waits_on": "Scheduler._handle_failed_recving",
    "fewer_blocks_than_held_dies": "MambaManager.allocate_new_blocks",
    "fewer_than_none_predicted": _STATE_PREDICTED,
    "finished_still_runs": "Scheduler.update_from_output",
    "first_step_reserves_no_lookahead": "Scheduler.schedule",
    "freed_block_leaks": "BlockPool.free_blocks",
    "frees_before_steps_end": "Scheduler._free_request_blocks",
    "front_trim": _PAIRED,
    "full_hit_gives_up_load": "Scheduler._get_local_prefix_cache_hit",
    "growth_rounds_down": _PREDICTED,
    "held_goes_beyond_answer": "NixlPullConnectorScheduler.request_finished",
    "held_is_loaded_again": "NixlPullConnectorScheduler.get_num_new_matched_tokens",
    "held_list_ends_with_prompt": "NixlPullConnectorWorker._read_blocks_for_req",
    "held_state_is_of_the_prompt": "NixlPullConnectorScheduler.get_num_new_matched_tokens",
    "hit_collapses_with_three_groups": _HIT,
    "hit_covers_whole_prompt": "KVCacheManager.get_computed_blocks",
    "hit_needs_every_group_on_decode": _HIT,
    "hit_not_counted": "SingleTypeKVCacheManager.add_local_computed_blocks",
    "hit_without_room_waits": "Scheduler.schedule",
    "impossible_fit_waits": "Scheduler.add_request",
    "last_match_not_dropped": _HIT,
    "last_zero_blocks_yield_all": _PAIRED,
    "late_end_loses_session": "Scheduler._handle_stopped_request",
    "late_output_takes_placeholder": "AsyncScheduler._update_request_with_output",
    "lease_ends_under_reader": "NixlBaseConnectorWorker._handle_heartbeat",
    "lease_ends_under_writer": "NixlBaseConnectorWorker._reap_expired_send_leases",
    "load_evicts_hits": "KVCacheCoordinator.allocate_new_computed_blocks",
    "load_keeps_room_for_drafts": "Scheduler.schedule",
    "loaded_state_not_predicted": _STATE_PREDICTED,
    "loads_take_the_last_blocks": "Scheduler._inflight_prefill_reserved_blocks",
    "longer_list_dies_across_ratios": _PAIRED,
    "lookahead_not_reserved": "KVCacheManager.allocate_slots",
    "mask_hides_needed_blocks": _MASK,
    "no_align_split": _SPLIT,
    "null_blocks_counted_as_cached": "SingleTypeKVCacheManager.add_local_computed_blocks",
    "null_blocks_registered": "BlockPool.cache_full_blocks",
    "old_states_are_kept": "MambaManager.get_num_skipped_tokens",
    "one_token_prompt_truncated": "NixlBaseConnectorScheduler._truncate_request_for_prefill",
    "one_token_turn_is_loaded_again": "NixlPullConnectorScheduler.get_num_new_matched_tokens",
    "partial_block_not_offered": "NixlPullConnectorScheduler.request_finished",
    "placeholders_predicted": _STATE_PREDICTED,
    "poisoned_step_counts": "Scheduler._handle_invalid_blocks",
    "prediction_forgets_hits": _PREDICTED,
    "preempted_prefill_is_offered": "Scheduler._preempt_request",
    "preemption_is_not_reported": "Scheduler._preempt_request",
    "preemption_keeps_counter": "Scheduler._preempt_request",
    "preemption_skips_the_next": "Scheduler.schedule",
    "prompt_end_run_over": _SPLIT,
    "read_is_not_reported": "NixlBaseConnectorWorker._get_new_notifs",
    "rejected_drafts_are_computed": "Scheduler.update_from_output",
    "removal_of_one_copy_reported": "BlockPool._emit_block_removed_events",
    "report_spans_skipped_blocks": "BlockPool._build_block_stored_event",
    "reset_under_load": "BlockPool.reset_prefix_cache",
    "resumes_before_late_output": "Scheduler.schedule",
    "retained_boundary_out_of_reach": _STATE_MASK,
    "retention_drops_shared_prefix_boundary": _STATE_MASK,
    "runner_is_passed_over": "Scheduler.schedule",
    "running_state_freed": "MambaManager.get_num_skipped_tokens",
    "session_loads_more_than_sent": "NixlPushConnectorScheduler.update_state_after_alloc",
    "shared_prefix_boundary_inside_a_block": _SPLIT,
    "split_at_the_smallest_block": _SPLIT,
    "ssm_placeholders_not_trimmed": _PAIRED,
    "state_only_at_last_boundary": _SPLIT,
    "state_past_the_resume": _SPLIT,
    "stray_report_dies": "Scheduler._update_from_kv_xfer_finished",
    "superseded_state_reserved": _STATE_PREDICTED,
    "truncates_for_any_non_full_group": "NixlBaseConnectorScheduler._truncate_request_for_prefill",
    "truncation_without_guard": "NixlBaseConnectorScheduler._truncate_request_for_prefill",
    "uncomputed_stays_cached": "Scheduler._preempt_request",
    "unneeded_prefill_is_not_reported": "NixlPushConnectorScheduler.update_state_after_alloc",
    "untouched_hits": "BlockPool.touch",
    "waiting_sessions_hold_on": "Scheduler.schedule",
    "watermark_is_ignored": "KVCacheManager.allocate_slots",
    "wide_block_never_crossed": _SPLIT,
    "window_freed_in_flight": "KVCacheManager.remove_skipped_blocks",
    "window_freed_too_soon": "SlidingWindowManager.get_num_skipped_tokens",
    "window_hit_one_block_short": "SlidingWindowManager._contiguous_blocks_for_hit",
    "window_of_loaded_tokens": "SlidingWindowManager.get_num_skipped_tokens",
    "window_offer_one_block_short": "NixlBaseConnectorScheduler.get_exchange_clipped_blocks",
    "window_prefix_aligned_before_drop": "SlidingWindowManager.find_longest_cache_hit",
    "write_awaited_for_ever": "NixlPushConnectorScheduler.build_connector_meta",
}
"""The function of vLLM in which each fault is made. A known finding has the name of the fault that
puts it into the model. A fault that is missing here belongs to no single function: the worker's
order of work, the order of requests, what a hash covers."""


def at_fault(faults: Iterable[str], known: Deviation | None = None) -> list[str]:
    """The functions of vLLM in which these faults, and this known finding, are made."""
    names = [*faults, *([known.name] if known else ())]
    return list(dict.fromkeys(OF_FAULT[name] for name in names if name in OF_FAULT))
