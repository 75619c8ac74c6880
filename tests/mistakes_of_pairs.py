"""Mistakes in live vLLM that show only where two features are used together: one for each pair that
was not driven before. Each is one line that the code of one feature forgets about the other."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

Holds = Callable[[Any, Any], bool]
"""Whether a scheduler and one of its requests have a feature."""


def _config(scheduler: Any) -> Any:
    return scheduler.vllm_config.kv_transfer_config


def _pushes(scheduler: Any) -> bool:
    return "Push" in type(scheduler.connector).__name__


def _turns(scheduler: Any) -> bool:
    transfer = _config(scheduler)
    return bool(transfer and transfer.kv_connector_extra_config.get("bidirectional_kv_xfer"))


FEATURES: dict[str, Holds] = {
    "sessions": lambda _, r: bool(r.resumable),
    "drafts": lambda s, _: s.num_spec_tokens > 0,
    "eagle": lambda s, _: bool(s.use_eagle),
    "pd": lambda s, r: s.connector is not None and bool(r.kv_transfer_params),
    "push": lambda s, _: _pushes(s),
    "one_way": lambda s, _: bool(_config(s)) and _config(s).kv_role != "kv_both",
    "failures": lambda s, r: r.request_id in s.failed_recving_kv_req_ids,
    "follow_up_turns": lambda s, _: _turns(s),
    "embeddings": lambda _, r: r.prompt_embeds is not None,
    "extra_keys": lambda _, r: r.cache_salt is not None or r.lora_request is not None,
    "store": lambda s, _: type(s.connector).__name__ == "StoreConnector",
    "events": lambda s, _: bool(s.kv_cache_manager.block_pool.enable_kv_cache_events),
    "partial_block_hits": lambda s, _: bool(
        getattr(s.kv_cache_manager.coordinator, "enable_partial_hash_hits", False)
    ),
    "priority": lambda s, _: s.policy.name == "PRIORITY",
    "retention": lambda s, _: s.kv_cache_manager.coordinator.retention_interval is not None,
    "window": lambda s, _: any(
        getattr(m, "sliding_window", 0) for m in s.kv_cache_manager.coordinator.single_type_managers
    ),
}


def one_more_is_computed(_scheduler: Any, request: Any) -> None:
    """A token is passed over."""
    request.num_computed_tokens += 1


def blocks_are_given_up(scheduler: Any, request: Any) -> None:
    """The blocks of a request that goes on are freed."""
    scheduler.kv_cache_manager.free(request)


def last_hash_is_lost(_scheduler: Any, request: Any) -> None:
    """The hash of the last full block stands for an earlier block too."""
    if len(request.block_hashes) > 1:
        request.block_hashes[-1] = request.block_hashes[0]


def event_is_lost(scheduler: Any, _request: Any) -> None:
    """The newest KV event is not reported."""
    queue = scheduler.kv_cache_manager.block_pool.kv_event_queue
    if queue:
        queue.pop()


def copies_are_lost(scheduler: Any, _request: Any) -> None:
    """A block is not copied before it is written."""
    scheduler.kv_cache_manager.take_kv_cache_block_copies()


def blocks_are_held_twice(scheduler: Any, request: Any) -> None:
    """The blocks of a request get one reference too many."""
    manager = scheduler.kv_cache_manager
    for blocks in manager.get_blocks(request.request_id).blocks:
        manager.block_pool.touch([block for block in blocks if not block.is_null])


class PairMistake(NamedTuple):
    """What is wrong before or after a method of the scheduler, for a request with all of these
    features."""

    features: tuple[str, ...]
    method: str
    wrong: Callable[[Any, Any], None]
    before: bool = False

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Put it into vLLM."""
        from vllm.v1.core.sched.scheduler import Scheduler

        original = getattr(Scheduler, self.method)
        conditions = [FEATURES[name] for name in self.features]

        def mistaken(scheduler: Any, request: Any, *args: Any, **named: Any) -> Any:
            both = all(holds(scheduler, request) for holds in conditions)
            if both and self.before:
                self.wrong(scheduler, request)
            result = original(scheduler, request, *args, **named)
            if both and not self.before:
                self.wrong(scheduler, request)
            return result

        patch.setattr(Scheduler, self.method, mistaken)


PART = "_update_request_as_session"
LOADED = "_update_waiting_for_remote_kv"
STOPPED = "_handle_stopped_request"
PREEMPTED = "_preempt_request"
OUTPUT = "_update_request_with_output"

MISTAKES: dict[str, PairMistake] = {
    "part_skips_beside_drafts": PairMistake(("sessions", "drafts"), PART, one_more_is_computed),
    "turn_frees_beside_eagle": PairMistake(("sessions", "eagle"), STOPPED, blocks_are_given_up),
    "part_skips_after_load": PairMistake(("sessions", "pd"), PART, one_more_is_computed),
    "part_frees_after_push": PairMistake(("sessions", "push"), PART, blocks_are_given_up),
    "part_holds_on_a_consumer": PairMistake(("sessions", "one_way"), PART, blocks_are_held_twice),
    "failed_session_keeps_tokens": PairMistake(
        ("sessions", "failures"), LOADED, one_more_is_computed
    ),
    "session_after_turns_skips": PairMistake(
        ("sessions", "follow_up_turns"), PART, one_more_is_computed
    ),
    "salt_is_lost_in_a_part": PairMistake(("sessions", "extra_keys"), PART, last_hash_is_lost),
    "event_of_a_part_is_lost": PairMistake(("sessions", "events"), OUTPUT, event_is_lost),
    "part_skips_beside_store": PairMistake(("sessions", "store"), PART, one_more_is_computed),
    "part_frees_beside_partial_hits": PairMistake(
        ("sessions", "partial_block_hits"), PART, blocks_are_given_up
    ),
    "embedded_turn_is_loaded_whole": PairMistake(
        ("follow_up_turns", "embeddings"), LOADED, one_more_is_computed
    ),
    "producer_frees_what_it_loads": PairMistake(
        ("follow_up_turns", "one_way"), LOADED, blocks_are_given_up
    ),
    "salted_event_is_lost": PairMistake(("events", "extra_keys"), OUTPUT, event_is_lost),
    "embedded_event_is_lost": PairMistake(("events", "embeddings"), OUTPUT, event_is_lost),
    "copy_is_lost_after_a_load": PairMistake(("partial_block_hits", "pd"), LOADED, copies_are_lost),
    "partial_load_holds_twice": PairMistake(
        ("partial_block_hits", "push"), LOADED, blocks_are_held_twice
    ),
    "partial_store_skips": PairMistake(
        ("partial_block_hits", "store"), PREEMPTED, blocks_are_held_twice, before=True
    ),
    "partial_drafts_skip": PairMistake(
        ("partial_block_hits", "drafts"), PREEMPTED, one_more_is_computed
    ),
    "partial_eagle_holds_twice": PairMistake(
        ("partial_block_hits", "eagle"), PREEMPTED, blocks_are_held_twice, before=True
    ),
    "salted_load_is_mistaken": PairMistake(("extra_keys", "pd"), LOADED, last_hash_is_lost),
    "salted_store_holds_twice": PairMistake(
        ("extra_keys", "store"), PREEMPTED, blocks_are_held_twice, before=True
    ),
    "embedded_store_skips": PairMistake(("embeddings", "store"), PREEMPTED, one_more_is_computed),
    "sparse_store_holds_twice": PairMistake(
        ("retention", "store"), PREEMPTED, blocks_are_held_twice, before=True
    ),
    "urgent_load_is_loaded_whole": PairMistake(("priority", "pd"), LOADED, one_more_is_computed),
    "windowed_session_skips": PairMistake(("sessions", "window"), PART, one_more_is_computed),
}
"""By name. The pairs are those that kvproof refused before it drove what vLLM accepts."""
