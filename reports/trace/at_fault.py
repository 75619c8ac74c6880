"""The function of vLLM that is at fault in a trace, where that is known: a fault says which rule of
the reference it replaces, and each rule is the work of one function of vLLM. A hang is refused by
the function that the waiting request needs."""

from collections.abc import Iterable

from kvproof.model.faults.registry import FAULTS

_SPLIT = "Scheduler._mamba_block_aligned_split"
_PREDICTED = "SingleTypeKVCacheManager.get_num_blocks_to_allocate"
_STATE_PREDICTED = "MambaManager.get_num_blocks_to_allocate"
_PAIRED = "NixlBaseConnectorWorker._apply_prefix_caching"
_HIT = "HybridKVCacheCoordinator.find_longest_cache_hit"
_MASK = "SlidingWindowManager.reachable_block_mask"
_STATE_MASK = "MambaManager.reachable_block_mask"

OF_RULE: dict[str, str] = {
    "align_chunk": _SPLIT,
    "allocate": "MambaManager.allocate_new_blocks",
    "asks_for_held": "NixlPullConnectorScheduler.get_num_new_matched_tokens",
    "attention_blocks_offered": "NixlPullConnectorScheduler.request_finished",
    "attention_blocks_predicted": _PREDICTED,
    "awaits_output": "Scheduler.schedule",
    "backoff_on_prefill": "NixlBaseConnectorScheduler._truncate_request_for_prefill",
    "begin_load": _SPLIT,
    "cache_block": "BlockPool.cache_full_blocks",
    "caches_prompt_end": "FullAttentionManager.cache_blocks",
    "computed_after_drafts": "Scheduler.update_from_output",
    "connector_brings_states": _HIT,
    "copies_predicted": _STATE_PREDICTED,
    "counted_after_hit": "SingleTypeKVCacheManager.add_local_computed_blocks",
    "counted_after_preemption": "Scheduler._preempt_request",
    "cut_held_list": "NixlPullConnectorWorker._read_blocks_for_req",
    "decline_push": "NixlPushConnectorScheduler.update_state_after_alloc",
    "drop_registration": "NixlPushConnectorScheduler.build_connector_meta",
    "entries_queued": "BlockPool.free_blocks",
    "evictable_hit_blocks": _PREDICTED,
    "fate_of_preempted": "Scheduler._preempt_request",
    "filled_by_step": "Scheduler.schedule",
    "forget_key": "BlockPool._maybe_evict_cached_block",
    "forget_uncomputed": "Scheduler._preempt_request",
    "free_aborted": "Scheduler._update_from_kv_xfer_finished",
    "free_behind_steps": "Scheduler._free_request_blocks",
    "frees_at_lease_end": "NixlBaseConnectorWorker._reap_expired_send_leases",
    "held_tokens_loaded": "NixlPullConnectorScheduler.get_num_new_matched_tokens",
    "hit_before_load": "Scheduler._get_local_prefix_cache_hit",
    "hit_fits_pool": "Scheduler.schedule",
    "hit_holds": _HIT,
    "is_copied_first": "MambaManager.allocate_new_blocks",
    "is_retained": _STATE_MASK,
    "keeps_its_place": "Scheduler._preempt_request",
    "keeps_until_loaded": "Scheduler.finish_requests",
    "kept_at_admission": "KVCacheManager.allocate_slots",
    "leaves_room": "Scheduler._inflight_prefill_reserved_blocks",
    "longest_hit_tokens": "KVCacheManager.get_computed_blocks",
    "longest_local_list": _PAIRED,
    "lookahead": "KVCacheManager.allocate_slots",
    "lookahead_at_admission": "Scheduler.schedule",
    "matched_and_dropped": _HIT,
    "matched_tokens": "UnitaryKVCacheCoordinator.find_longest_cache_hit",
    "needed_from_load": "SlidingWindowManager.get_num_skipped_tokens",
    "offered_beside_hit": "Scheduler._get_local_prefix_cache_hit",
    "placeholders_due": "AsyncScheduler._update_request_with_output",
    "placeholders_taken": "AsyncScheduler._update_request_with_output",
    "pool_is_idle": "BlockPool.reset_prefix_cache",
    "prompt_after_truncation": "NixlBaseConnectorScheduler._truncate_request_for_prefill",
    "prompt_tokens_known": "NixlBaseConnectorScheduler._get_remote_prefill_token_count",
    "references_dropped": "BlockPool.free_blocks",
    "renews_lease": "NixlBaseConnectorWorker._handle_heartbeat",
    "report_spans": "BlockPool._build_block_stored_event",
    "reported_id": "NixlBaseConnectorWorker._get_new_notifs",
    "reports_removal": "BlockPool._emit_block_removed_events",
    "request_fits_pool": "Scheduler.add_request",
    "restart_after_failed_load": "Scheduler._handle_failed_recving",
    "runners_in_turn": "Scheduler.schedule",
    "serve_waiting": "Scheduler.schedule",
    "serves_a_hit": _MASK,
    "settled_hit": _HIT,
    "settled_tokens": "KVCacheManager.remove_skipped_blocks",
    "shared_prefix_boundary": _SPLIT,
    "slots_kept_beside_load": "Scheduler.schedule",
    "split_block": _SPLIT,
    "state_blocks_predicted": _STATE_PREDICTED,
    "state_slots_moved": _PAIRED,
    "states_superseded": _STATE_PREDICTED,
    "stop_running": "Scheduler.update_from_output",
    "tail_chunk": _SPLIT,
    "take_repeated_report": "Scheduler._update_from_kv_xfer_finished",
    "takes_a_place": "Scheduler.schedule",
    "tokens_loaded_before_chunk": _STATE_PREDICTED,
    "tokens_loaded_by_decode": "NixlBaseConnectorScheduler._get_remote_prefill_token_count",
    "tokens_offered": "NixlPullConnectorScheduler.request_finished",
    "tokens_skipped_by_state": "MambaManager.get_num_skipped_tokens",
    "tokens_skipped_by_window": "SlidingWindowManager.get_num_skipped_tokens",
    "tokens_to_cache": "KVCacheManager.allocate_slots",
    "touch_and_take": "KVCacheCoordinator.allocate_new_computed_blocks",
    "touch_hits": "BlockPool.touch",
    "trim": _PAIRED,
    "turns_left": "Scheduler.schedule",
    "uncache_missing": "Scheduler._handle_invalid_blocks",
    "void_steps": "Scheduler._handle_invalid_blocks",
    "wait_for_user": "Scheduler._handle_stopped_request",
    "window_blocks_for_hit": "SlidingWindowManager._contiguous_blocks_for_hit",
    "window_blocks_offered": "NixlBaseConnectorScheduler.get_exchange_clipped_blocks",
}
"""The function of vLLM for each rule that a fault replaces. A rule that is missing here belongs to
no single function: the worker's order of work, the order of requests, what a hash covers."""


def at_fault(faults: Iterable[str]) -> list[str]:
    """The functions of vLLM in which these faults are made."""
    rules = (FAULTS[name].replaces[0] for name in faults if name in FAULTS)
    return list(dict.fromkeys(OF_RULE[rule] for rule in rules if rule in OF_RULE))
