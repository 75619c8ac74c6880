"""The rules of the reference without a fault: the function that makes each decision.

Arithmetic comes from `counts` and works on numbers and on Z3 terms.
"""

from kvproof.model.arithmetic import counts
from kvproof.model.reference.blocks import (
    allocation,
    caching,
    groups,
    kv_event_queue,
    partial_block_hits,
    pool,
    prefix_hits,
)
from kvproof.model.reference.features import in_flight
from kvproof.model.reference.rules import Rules
from kvproof.model.reference.scheduling import (
    admission,
    greedy,
    service_order,
    sessions,
    told_to_worker,
)
from kvproof.model.reference.transfers import failed_load, transfer_rules

REFERENCE = Rules(
    # P and D
    backoff_on_prefill=transfer_rules.backoff_on_prefill,
    backoff_on_decode=transfer_rules.backoff_on_decode,
    prompt_after_truncation=counts.prompt_after_truncation,
    tokens_loaded_by_decode=counts.tokens_loaded_by_decode,
    trim=counts.trim,
    longest_local_list=transfer_rules.longest_local_list,
    state_slots_moved=counts.state_slots_moved,
    needed_from_load=counts.needed_from_load,
    connector_brings_states=transfer_rules.connector_brings_states,
    offered_beside_hit=transfer_rules.offered_beside_hit,
    hit_before_load=transfer_rules.hit_before_load,
    prompt_tokens_known=transfer_rules.prompt_tokens_known,
    leaves_room=lambda needed, free: needed <= free,
    slots_kept_beside_load=transfer_rules.slots_kept_beside_load,
    begin_load=admission.begin_load,
    keeps_until_loaded=transfer_rules.keeps_until_loaded,
    free_aborted=pool.release_all,
    take_repeated_report=transfer_rules.take_repeated_report,
    restart_after_failed_load=transfer_rules.restart_after_failed_load,
    attention_blocks_offered=counts.blocks_for_tokens,
    tokens_sampled_by_prefill=transfer_rules.tokens_sampled_by_prefill,
    reported_id=transfer_rules.reported_id,
    renews_lease=transfer_rules.renews_lease,
    frees_at_lease_end=transfer_rules.frees_at_lease_end,
    drop_registration=transfer_rules.drop_registration,
    decline_push=transfer_rules.decline_push,
    tokens_offered=counts.tokens_offered,
    # follow-up turns
    held_tokens_loaded=counts.held_tokens_loaded,
    cut_held_list=transfer_rules.cut_held_list,
    asks_for_held=transfer_rules.asks_for_held,
    # cache groups
    tokens_skipped_by_window=counts.tokens_skipped_by_window,
    tokens_skipped_by_state=counts.tokens_skipped_by_state,
    window_blocks_for_hit=counts.window_blocks_for_hit,
    window_blocks_offered=counts.window_blocks_offered,
    serves_a_hit=counts.serves_a_hit,
    is_retained=counts.is_retained,
    matched_and_dropped=groups.matched_and_dropped,
    matched_tokens=lambda known, _groups: known,
    longest_hit_tokens=counts.longest_hit_tokens,
    attention_blocks_predicted=counts.attention_blocks_predicted,
    state_blocks_predicted=counts.state_blocks_predicted,
    align_chunk=counts.align_chunk,
    shared_prefix_boundary=prefix_hits.shared_prefix_boundary,
    counted_after_hit=counts.blocks_counted_after_hit,
    caches_prompt_end=caching.caches_prompt_end,
    counted_after_preemption=lambda _counted: 0,
    cache_block=pool.cache_block,
    hashed_prefix=groups.hashed_prefix,
    hashed_tokens=counts.hashed_tokens,
    lookahead=lambda tokens: tokens,
    tokens_to_cache=counts.tokens_to_cache,
    computed_after_drafts=counts.computed_after_drafts,
    states_kept=lambda accepted, _drafts: accepted,
    allocate=pool.allocate,
    hit_holds=all,
    settled_hit=lambda hit, _groups: hit,
    tokens_loaded_before_chunk=allocation.tokens_loaded_before_chunk,
    states_superseded=lambda left_behind: left_behind,
    evictable_hit_blocks=lambda blocks: blocks,
    # hits inside a block
    tail_chunk=counts.tail_chunk,
    split_block=lambda state_block, _smallest: state_block,
    is_copied_first=pool.is_cached,
    copies_predicted=lambda copies: copies,
    hit_fits_pool=pool.fits,
    run_step=partial_block_hits.run_step,
    filled_by_step=partial_block_hits.filled_by_step,
    # service order
    rank=service_order.rank,
    takes_a_place=service_order.takes_a_place,
    runners_in_turn=lambda running: running,
    turns_left=lambda turn, _preempted: turn,
    forget_uncomputed=pool.forget_uncomputed,
    # what the worker is told
    keeps_its_place=told_to_worker.keeps_its_place,
    blocks_to_zero=told_to_worker.blocks_to_zero,
    # steps in flight
    settled_tokens=counts.settled_tokens,
    placeholders_taken=int,
    placeholders_due=in_flight.placeholders_due,
    awaits_output=in_flight.awaits_output,
    void_steps=failed_load.void_steps,
    uncache_missing=failed_load.uncache_missing,
    free_behind_steps=in_flight.free_behind_steps,
    stop_running=transfer_rules.stop_running,
    wait_for_user=sessions.wait_for_user,
    serve_waiting=greedy.serve_waiting,
    pool_is_idle=pool.is_idle,
    request_fits_pool=pool.fits,
    # pool
    touch_hits=pool.touch,
    touch_and_take=allocation.touch_and_take,
    forget_key=pool.forget_key,
    reports_removal=lambda copies_left: copies_left == 0,
    report_spans=kv_event_queue.report_spans,
    references_dropped=lambda entries: entries,
    entries_queued=lambda freed: freed,
)
"""The rules of the reference without a fault."""
