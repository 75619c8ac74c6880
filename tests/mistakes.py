"""Mistakes that are put into real vLLM, most of them historical, and the check that finds each.

A preset shows it: by default that of the fault of its name. Those of TOLD and of OF_STEPS have the
name of their fault of the model. Those of LIVE have none: the model has no such part.
"""

from typing import Any
from unittest import mock

import pytest

from kvproof.model.faults.registry import FAULTS
from tests.in_vllm import (
    ASYNC,
    COORDINATOR,
    CORE,
    MAMBA,
    MANAGER,
    NIXL_SCHEDULER,
    NIXL_WORKER,
    POOL,
    SCHEDULER,
    SINGLE,
    WINDOW,
    Mistake,
    always,
    around,
    both,
    instead,
    line,
    nothing,
)


def preset_of(name: str) -> str:
    """The preset that shows a mistake."""
    return str(MISTAKES[name].shown_by or FAULTS[name].cluster)


# Transfers between P and D


def truncates_for_any_non_full_group(right: Any, self: Any, request: Any) -> None:
    with mock.patch.object(self, "_has_mamba", self._is_hma_required):
        right(self, request)


def truncates_who_is_preempted(
    right: Any, self: Any, request: Any, *args: Any, **named: Any
) -> None:
    right(self, request, *args, **named)
    if request.kv_transfer_params.pop("_p_side_truncated", None):
        self.connector.connector_scheduler._truncate_request_for_prefill(request)


def trims_from_the_front(
    _self: Any, decode_block_ids: Any, prefill_block_ids: Any, *_: int, **__: int
) -> Any:
    lists = list(zip(decode_block_ids, prefill_block_ids, strict=True))
    both = [min(len(a), len(b)) for a, b in lists]
    return (
        [a[:n] for (a, _), n in zip(lists, both, strict=True)],
        [b[:n] for (_, b), n in zip(lists, both, strict=True)],
    )


def leaves_states_untrimmed(
    right: Any, self: Any, decode_block_ids: Any, prefill_block_ids: Any, *own: int, **named: int
) -> Any:
    from vllm.v1.kv_cache_interface import MambaSpec

    lists = zip(decode_block_ids, prefill_block_ids, strict=True)
    trimmed = [b[-len(a) :] for a, b in lists]
    ours, theirs = right(self, decode_block_ids, trimmed, *own, **named)
    state = [issubclass(t, MambaSpec) for t in self._group_spec_types]
    return ours, [r if s else t for r, t, s in zip(prefill_block_ids, theirs, state, strict=True)]


def needs_every_group(patch: pytest.MonkeyPatch) -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl import connector

    owners = [c for c in vars(connector).values() if isinstance(c, type)]
    for owner in owners:
        if "supports_divergent_local_hybrid_hits" in vars(owner):
            patch.setattr(owner, "supports_divergent_local_hybrid_hits", False)


def offers_one_block_less(right: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    right(self, *args, **kwargs)
    self.blocks_per_sw = [max(blocks - 1, 0) for blocks in self.blocks_per_sw]


def reserves_nothing_for_loads(right: Any, self: Any, *args: Any, **named: Any) -> Any:
    if named.get("delay_cache_blocks"):  # a load that is not in this step
        named |= {"full_sequence_must_fit": False, "reserved_blocks": 0}
    return right(self, *args, **named)


# Blocks and the prefix cache


def registers_null_blocks(
    right: Any, self: Any, request: Any, tokens: int, *args: Any, **kwargs: Any
) -> None:
    from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id

    right(self, request, tokens, *args, **kwargs)
    blocks = self.req_to_blocks[request.request_id]
    cached = self.block_pool.cached_block_hash_to_block
    for position in range(tokens // self.block_size):
        if blocks[position].is_null:
            value = request.block_hashes[position]
            key = make_block_hash_with_group_id(value, self.kv_cache_group_id)
            cached.insert(key, blocks[position])


def forgets_the_key_of_a_block(_self: Any, block: Any) -> bool:
    block.reset_hash()
    return True


def keeps_one_boundary(right: Any, cls: Any, **options: Any) -> Any:
    return right(cls, **options | {"reachable_boundaries": options["reachable_boundaries"][:1]})


# Steps in flight


def takes_placeholders_of_late_output(
    right: Any, self: Any, request: Any, tokens: Any, is_stale: bool = False
) -> Any:
    result = right(self, request, tokens, is_stale)
    request.num_output_placeholders -= len(result[0]) if is_stale else 0
    return result


def takes_placeholders_of_chunks(right: Any, self: Any, scheduled: Any, output: Any) -> Any:
    result = right(self, scheduled, output)
    for name, tokens in zip(output.req_ids, output.sampled_token_ids or (), strict=False):
        if not tokens and name in self.requests:
            self.requests[name].num_output_placeholders -= 1
    return result


# Drafts


def keeps_rejected_drafts(right: Any, self: Any, output: Any, result: Any) -> Any:
    ends = {name: self.requests[name].num_computed_tokens for name in result.req_ids}
    outputs = right(self, output, result)
    for name in output.scheduled_spec_decode_tokens:
        if name in self.requests:
            self.requests[name].num_computed_tokens = ends[name]
    return outputs


def keeps_placeholders_of_rejected_drafts(right: Any, self: Any, output: Any, result: Any) -> Any:
    """vLLM steps the computed tokens back and leaves the placeholders."""
    rejected = {
        name: len(drafts) + 1 - len(result.sampled_token_ids[result.req_id_to_index[name]])
        for name, drafts in output.scheduled_spec_decode_tokens.items()
    }
    outputs = right(self, output, result)
    for name, count in rejected.items():
        if name in self.requests and self.requests[name].num_output_placeholders:
            self.requests[name].num_output_placeholders += count
    return outputs


def splits_at_the_last_boundary(right: Any, self: Any, *args: Any) -> Any:
    with mock.patch.object(self, "use_eagle_block_drop", False):
        return right(self, *args)


def dies_of_fewer_blocks(right: Any, self: Any, name: str, tokens: int, main: int) -> Any:
    needed = -(-main // self.block_size) + self.num_speculative_blocks
    assert needed >= len(self.req_to_blocks[name])
    return right(self, name, tokens, main)


TOLD = {
    "loads_take_the_last_blocks": Mistake(
        around(f"{MANAGER}.allocate_slots", reserves_nothing_for_loads), "every_request_can_finish"
    ),
    "window_offer_one_block_short": Mistake(
        around(f"{NIXL_SCHEDULER}.__init__", offers_one_block_less), "cached_block_holds_its_key"
    ),
    "extra_keys_left_out": Mistake(
        instead(
            f"{CORE}.kv_cache_utils:generate_block_hash_extra_keys",
            lambda _request, _start, _end, mm_index: (None, mm_index),
        ),
        "cached_block_holds_its_key",
    ),
    "window_freed_in_flight": Mistake(
        line(
            f"{MANAGER}.allocate_slots",
            "max(0, total_computed_tokens - request.num_in_flight_tokens)",
            "total_computed_tokens",
        ),
        "settled_frees",
    ),
    "frees_before_steps_end": Mistake(
        instead(f"{SCHEDULER}._request_blocks_can_be_freed", lambda *_: True), "settled_frees"
    ),
    "late_output_takes_placeholder": Mistake(
        around(f"{ASYNC}._update_request_with_output", takes_placeholders_of_late_output),
        "placeholders_are_samples_in_flight",
    ),
    "chunk_takes_placeholder": Mistake(
        around(f"{ASYNC}.update_from_output", takes_placeholders_of_chunks),
        "placeholders_are_samples_in_flight",
    ),
    "decode_loads_whole_prompt": Mistake(
        line(f"{NIXL_SCHEDULER}._get_remote_prefill_token_count", "tokens - backoff", "tokens"),
        "prefill_and_decode_agree",
    ),
    "truncation_without_guard": Mistake(
        around(f"{SCHEDULER}._preempt_request", truncates_who_is_preempted),
        "truncated_at_most_once",
    ),
    "truncates_for_any_non_full_group": Mistake(
        around(f"{NIXL_SCHEDULER}._truncate_request_for_prefill", truncates_for_any_non_full_group),
        "prefill_and_decode_agree",
    ),
    "front_trim": Mistake(
        instead(f"{NIXL_WORKER}._apply_prefix_caching", trims_from_the_front),
        "paired_offsets_are_equal",
    ),
    "ssm_placeholders_not_trimmed": Mistake(
        both(
            around(
                f"{NIXL_SCHEDULER}.get_exchange_clipped_blocks",
                lambda right, self, blocks, **_: right(self, blocks, clip_ssm=False),
            ),
            around(f"{NIXL_WORKER}._apply_prefix_caching", leaves_states_untrimmed),
        ),
        "engine_survives",
    ),
    "null_blocks_registered": Mistake(
        around(f"{MAMBA}.cache_blocks", registers_null_blocks), "null_block_is_nobody"
    ),
    "state_only_at_last_boundary": Mistake(
        around(
            f"{MANAGER}.get_computed_blocks",
            lambda right, self, request: (*right(self, request)[:2], 0),
        ),
        "repeated_prompt_hits",
    ),
    "no_align_split": Mistake(
        instead(
            f"{SCHEDULER}._mamba_block_aligned_split", lambda _self, _request, tokens, *_: tokens
        ),
        "cached_block_holds_its_key",
    ),
    "uncached_blocks_go_last": Mistake(
        line(f"{POOL}.free_blocks", "free_block_queue.prepend_n(", "free_block_queue.append_n("),
        "uncached_blocks_are_reused_at_once",
    ),
    "prefix_is_freed_first": Mistake(
        line(
            f"{SINGLE}.free",
            "reversed(self.pop_blocks_for_free(request_id))",
            "self.pop_blocks_for_free(request_id)",
        ),
        "unneeded_blocks_are_reused_first",
    ),
    "untouched_hits": Mistake(nothing(f"{POOL}.touch"), "references_are_exact"),
    "evicted_key_stays": Mistake(
        instead(f"{POOL}._maybe_evict_cached_block", forgets_the_key_of_a_block),
        "hash_map_is_sound",
    ),
    "prediction_forgets_hits": Mistake(
        instead(f"{SINGLE}._get_num_evictable_blocks", classmethod(lambda *_: 0)),
        "predicted_is_taken",
    ),
    "abort_frees_under_load": Mistake(
        around(
            f"{SCHEDULER}._free_request",
            lambda right, self, request, **_delay: right(self, request),
        ),
        "nothing_reused_under_transfer",
    ),
    "hit_needs_every_group_on_decode": Mistake(needs_every_group, "repeated_prompt_hits"),
    "retained_boundary_out_of_reach": Mistake(
        instead(f"{COORDINATOR}:replay_boundaries", lambda prompt, *_, **__: (prompt,)),
        "repeated_prompt_hits",
    ),
    "retention_drops_shared_prefix_boundary": Mistake(
        around(f"{WINDOW}.reachable_block_mask", keeps_one_boundary), "repeated_prompt_hits"
    ),
    "lookahead_not_reserved": Mistake(
        instead("vllm.config:VllmConfig.num_lookahead_tokens", 0), "writer_is_alone"
    ),
    "rejected_drafts_are_computed": Mistake(
        around(f"{SCHEDULER}.update_from_output", keeps_rejected_drafts),
        "request_reads_its_own_prefix",
    ),
    "last_match_not_dropped": Mistake(
        around(
            f"{CORE}.single_type_kv_cache_manager:FullAttentionManager.find_longest_cache_hit",
            lambda right, *args, **named: right(*args, **named | {"drop_eagle_block": False}),
        ),
        "hit_holds_in_every_group",
    ),
    "eagle_drop_block_not_cached": Mistake(
        around(
            f"{WINDOW}.reachable_block_mask",
            lambda right, *args, **named: right(*args, **named | {"use_eagle": False}),
        ),
        "repeated_prompt_hits",
    ),
    "state_past_the_resume": Mistake(
        around(f"{SCHEDULER}._mamba_block_aligned_split", splits_at_the_last_boundary),
        "repeated_prompt_hits",
    ),
    "fewer_blocks_than_held_dies": Mistake(
        around(f"{MAMBA}.allocate_new_blocks", dies_of_fewer_blocks), "engine_survives"
    ),
}
"""Each finding of these is told in a sentence, and its trace shows it again."""


# The order of the requests in a step, what is reported to the worker, and what is kept after it


def reports_no_preemption(right: Any, *args: Any, **kwargs: Any) -> Any:
    output = right(*args, **kwargs)
    output.preempted_req_ids = set()
    return output


def takes_group_by_group(
    self: Any,
    request_id: str,
    new_computed_blocks: Any,
    num_local_computed_tokens: int,
    num_external_computed_tokens: int,
    **_options: Any,
) -> None:
    tokens = num_local_computed_tokens, num_external_computed_tokens
    if any(request_id in manager.num_cached_block for manager in self.single_type_managers):
        return
    for manager, hits in zip(self.single_type_managers, new_computed_blocks, strict=True):
        manager.add_local_computed_blocks(request_id, hits, *tokens)
        if tokens[1]:
            manager.allocate_external_computed_blocks(request_id, *tokens)


OF_STEPS = {
    "preemption_skips_the_next": Mistake(
        line(f"{SCHEDULER}.schedule", "if victim_index < req_index:", "if False:"), "room_is_used"
    ),
    "preemption_is_not_reported": Mistake(
        around(f"{SCHEDULER}.schedule", reports_no_preemption), "worker_forgets_who_left"
    ),
    "load_evicts_hits": Mistake(
        instead(
            f"{COORDINATOR}:HybridKVCacheCoordinator.allocate_new_computed_blocks",
            takes_group_by_group,
        ),
        "predicted_is_taken",
    ),
    "blocks_of_loads_are_zeroed": Mistake(
        around(
            f"{SINGLE}.allocate_external_computed_blocks",
            lambda right, self, name, local, external, *_, **__: right(
                self, name, local, external, record_for_zeroing=True
            ),
        ),
        "zeroed_blocks_are_new",
    ),
    "windows_are_not_zeroed": Mistake(
        always(f"{WINDOW}._record_new_block_ids", False), "new_blocks_are_zeroed"
    ),
}


# Parts that the model does not have


def tells_the_worker_one_too_many(right: Any, *args: Any, **kwargs: Any) -> Any:
    """The worker takes the positions of its tokens from that."""
    data = right(*args, **kwargs)
    data.num_computed_tokens = [count + 1 for count in data.num_computed_tokens]
    return data


def loses_who_is_preempted(right: Any, self: Any, request: Any, *args: Any, **named: Any) -> None:
    right(self, request, *args, **named)
    self.waiting.remove_request(request)


def queues_twice(right: Any, self: Any, request: Any) -> None:
    right(self, request)
    right(self, request)


def resets_only_free_blocks(pool: Any) -> bool:
    for block in pool.free_block_queue.get_all_free_blocks():
        pool._maybe_evict_cached_block(block)
    return True


def serves_the_highest_number_first(one: Any, other: Any) -> bool:
    return bool((-one.priority, one.arrival_time) < (-other.priority, other.arrival_time))


def ignores_the_watermark(right: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    right(self, *args, **kwargs)
    self.watermark_blocks = 0


def loses_the_newest_event(right: Any, self: Any, *args: Any) -> Any:
    """An event that waits is gone before it is published."""
    del self.kv_cache_manager.block_pool.kv_event_queue[-1:]
    return right(self, *args)


def publishes_in_another_order(right: Any, self: Any, *args: Any) -> Any:
    """The events of one step come in reverse order."""
    self.kv_cache_manager.block_pool.kv_event_queue.reverse()
    return right(self, *args)


def hashes_no_token_ahead(
    right: Any, function: Any, parent: Any, tokens: Any, extra_keys: Any = None
) -> Any:
    """Of what a hash covers beside its tokens, the tokens after the block are left out."""
    return right(function, parent, tokens, extra_keys[0] if extra_keys else None)


def caches_prompts_only(
    right: Any, self: Any, request: Any, tokens: int, *args: Any, **named: Any
) -> None:
    """No block of an answer is cached."""
    right(self, request, min(tokens, request.num_prompt_tokens), *args, **named)


def waits_a_step_longer(right: Any, self: Any, request: Any) -> bool:
    """No request is admitted by the first step that could."""
    begun = right(self, request)
    if not begun or getattr(request, "was_passed_over", False):
        return bool(begun)
    request.was_passed_over = True
    return False


LIVE = {
    "request_waits_a_step_longer": Mistake(
        around(f"{SCHEDULER}._handle_blocked_waiting_request", waits_a_step_longer),
        *("room_is_used", "pd"),
    ),
    "answers_are_not_cached": Mistake(
        around(f"{SINGLE}.cache_blocks", caches_prompts_only),
        *("computed_tokens_are_cached", "full"),
    ),
    "window_is_freed_a_block_late": Mistake(
        around(
            f"{WINDOW}.get_num_skipped_tokens",
            lambda right, self, tokens: right(self, tokens) - self.block_size,
        ),
        *("passed_blocks_are_freed", "window"),
    ),
    "worker_is_told_one_too_many": Mistake(
        around(f"{SCHEDULER}._make_cached_request_data", tells_the_worker_one_too_many),
        *("request_reads_its_own_prefix", "full"),
    ),
    "new_blocks_are_noted_for_ever": Mistake(  # vllm#44490 in this release: nobody takes the list
        both(
            always(f"{SINGLE}._record_new_block_ids", True),
            instead(f"{SINGLE}.take_new_block_ids", lambda _self: []),
        ),
        *("idle_engine_keeps_nothing", "full"),
    ),
    "session_that_waits_has_no_place": Mistake(
        always(f"{SCHEDULER}.num_waiting_for_streaming_input", 0),
        *("worker_forgets_who_left", "sessions-limited"),
    ),
    "placeholders_of_rejected_drafts_stay": Mistake(
        around(f"{SCHEDULER}.update_from_output", keeps_placeholders_of_rejected_drafts),
        *("placeholders_are_samples_in_flight", "async-drafts"),
    ),
    "preempted_request_is_lost": Mistake(
        around(f"{SCHEDULER}._preempt_request", loses_who_is_preempted),
        *("every_request_in_one_queue", "window"),
    ),
    "request_is_queued_twice": Mistake(
        around(f"{SCHEDULER}._enqueue_waiting_request", queues_twice),
        *("every_request_in_one_queue", "full"),
    ),
    "preempted_request_keeps_its_blocks": Mistake(
        line(f"{SCHEDULER}._preempt_request", "self._free_request_blocks(request)", "pass"),
        *("every_request_in_one_queue", "window"),
    ),
    "reset_leaves_blocks": Mistake(
        instead(f"{POOL}.reset_prefix_cache", resets_only_free_blocks),
        *("reset_is_whole", "resetting"),
    ),
    "priorities_are_reversed": Mistake(
        instead("vllm.v1.request:Request.__lt__", serves_the_highest_number_first),
        *("priority_is_kept", "priority"),
    ),
    "watermark_is_ignored": Mistake(
        around(f"{MANAGER}.__init__", ignores_the_watermark), *("watermark_is_kept", "watermark")
    ),
    "newest_event_is_lost": Mistake(
        around(f"{SCHEDULER}.update_from_output", loses_the_newest_event),
        *("events_replay_to_the_cache", "events"),
    ),
    "events_come_in_another_order": Mistake(
        around(f"{SCHEDULER}.update_from_output", publishes_in_another_order),
        *("events_replay_to_the_cache", "events"),
    ),
    "events_of_hits_carry_another_block": Mistake(
        line(f"{POOL}.emit_cached_block_events", "start_token_idx = 0", "start_token_idx = 1"),
        *("events_carry_their_tokens", "events"),
    ),
    # Of block hashes that cover the next token, which 0.33.0 is the first release to have.
    "next_token_not_hashed": Mistake(
        around(f"{CORE}.kv_cache_utils:hash_block_tokens", hashes_no_token_ahead),
        *("drafter_holds_its_key", "lookahead-hashes"),
    ),
    "last_match_dropped_too": Mistake(
        around(
            f"{MANAGER}.__init__",
            lambda right, *args, **named: right(*args, **named | {"use_eagle": True}),
        ),
        *("hit_is_the_longest", "lookahead-hashes"),
    ),
}

MISTAKES: dict[str, Mistake] = TOLD | OF_STEPS | LIVE
