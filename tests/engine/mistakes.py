"""Mistakes that are planted in real vLLM: ordinary ones, each a changed line of one function.

`plant` is called in the engine's process, before the engine is built; see `tests.engine.planted`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.in_vllm import CORE, MANAGER, POOL, SCHEDULER, SINGLE, line

TYPES = f"{CORE}.single_type_kv_cache_manager"
UTILS = f"{CORE}.kv_cache_utils"

COUNTS = ("references_are_exact", "pool_adds_up", "no_block_free_and_held")
READS = ("request_reads_its_own_prefix",)
CONTENT = ("cached_block_holds_its_key", *READS)
DRAFTS = {
    "method": "ngram",
    "num_speculative_tokens": 3,
    "prompt_lookup_min": 1,
    "prompt_lookup_max": 2,
}


class Mistake(NamedTuple):
    """`old` is a part of the source of the function `place`, `new` stands in its stead. `names` are
    the invariants that name the mistake rightly; it has none where no invariant forbids it."""

    place: str
    old: str
    new: str
    names: tuple[str, ...]
    engine: str = "full"
    options: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it


MISTAKES = {
    # Reference counts and the free queue.
    "hit_is_not_counted": Mistake(f"{POOL}.touch", "block.ref_cnt += 1", "pass", COUNTS),
    "hit_stays_in_free_queue": Mistake(
        f"{POOL}.touch", "self.free_block_queue.remove(block)", "pass", COUNTS
    ),
    "shared_block_is_freed": Mistake(
        f"{POOL}.free_blocks", "block.ref_cnt -= 1", "block.ref_cnt = 0", COUNTS
    ),
    "preempted_keeps_its_blocks": Mistake(
        f"{SCHEDULER}._preempt_request",
        "self._free_request_blocks(request)",
        "self.kv_cache_manager.pop_blocks_for_free(request)",
        COUNTS,
    ),
    "aborted_keeps_its_blocks": Mistake(
        f"{SCHEDULER}._free_blocks",
        "self._free_request_blocks(request)",
        "request.status == RequestStatus.FINISHED_ABORTED or self._free_request_blocks(request)",
        ("idle_engine_keeps_nothing", "all_blocks_return", *COUNTS),
    ),
    "aborted_is_freed_twice": Mistake(
        f"{SCHEDULER}._free_blocks",
        "self._free_request_blocks(request)",
        "blocks = [block for table in self.kv_cache_manager.get_blocks(request.request_id).blocks"
        " for block in table if request.status == RequestStatus.FINISHED_ABORTED];"
        " self._free_request_blocks(request);"
        " self.kv_cache_manager.block_pool.free_blocks(blocks)",
        COUNTS,
    ),
    "tail_is_evicted_last": Mistake(
        f"{SINGLE}.free",
        "reversed(self.pop_blocks_for_free(request_id))",
        "self.pop_blocks_for_free(request_id)",
        (),
    ),
    # The hash map.
    "evicted_key_stays": Mistake(
        f"{POOL}._remove_cached_block_hashes",
        "self.cached_block_hash_to_block.pop(block_hash, block.block_id)",
        "self.cached_block_hash_to_block.get_one_block(block_hash)",
        ("hash_map_is_sound",),
    ),
    "second_copy_replaces_the_first": Mistake(
        f"{CORE}.block_pool:BlockHashToBlockMap.insert",
        "self._cache[key] = {blocks.block_id: blocks, block.block_id: block}",
        "self._cache[key] = block",
        ("hash_map_is_sound",),
    ),
    "reset_keeps_the_map": Mistake(
        f"{POOL}.reset_prefix_cache",
        "self.cached_block_hash_to_block = BlockHashToBlockMap()",
        "pass",
        ("hash_map_is_sound", "reset_is_whole"),
    ),
    "hash_forgets_its_parent": Mistake(
        f"{UTILS}:hash_block_tokens",
        "hash_function((parent_block_hash, ",
        "hash_function((NONE_HASH, ",
        CONTENT,
    ),
    "hash_forgets_the_salt": Mistake(
        f"{UTILS}:generate_block_hash_extra_keys",
        "lora_extra_keys + mm_extra_keys + cache_salt_keys + prompt_embeds_keys",
        "lora_extra_keys + mm_extra_keys + prompt_embeds_keys",
        CONTENT,
    ),
    # What is cached, and what is hit.
    "prompt_is_cached_before_its_chunks": Mistake(
        f"{MANAGER}.allocate_slots",
        "self.coordinator.cache_blocks(request, num_tokens_to_cache)",
        "self.coordinator.cache_blocks(request, request.num_tokens)",
        ("counter_counts_only_cached", *CONTENT),
    ),
    "block_is_cached_when_begun": Mistake(
        f"{SINGLE}.cache_blocks",
        "num_full_blocks = num_tokens // self.block_size",
        "num_full_blocks = min(cdiv(num_tokens, self.block_size), len(request.block_hashes))",
        ("counter_counts_only_cached", *CONTENT),
    ),
    "hit_is_the_whole_prompt": Mistake(
        f"{MANAGER}.get_computed_blocks",
        "max_cache_hit_length = request.num_tokens - 1",
        "max_cache_hit_length = request.num_tokens",
        ("engine_survives",),
    ),
    "hit_is_one_block_too_long": Mistake(
        f"{CORE}.kv_cache_coordinator:UnitaryKVCacheCoordinator.find_longest_cache_hit",
        "return hit_blocks, hit_length, 0",
        "return hit_blocks, hit_length + self.block_size"
        " * (0 < hit_length < max_cache_hit_length - self.block_size), 0",
        READS,
    ),
    "hit_begins_at_the_second_block": Mistake(
        f"{TYPES}:FullAttentionManager.find_longest_cache_hit",
        "itertools.islice(full_block_hashes, max_length // block_size)",
        "itertools.islice(full_block_hashes, 1, 1 + max_length // block_size)",
        READS,
    ),
    # Counters of a request.
    "preempted_keeps_its_counter": Mistake(
        f"{SINGLE}.pop_blocks_for_free",
        "self.num_cached_block.pop(request_id, None)",
        "pass",
        ("counter_counts_only_cached",),
    ),
    "preempted_stays_computed": Mistake(
        f"{SCHEDULER}._preempt_request", "request.num_computed_tokens = 0", "pass", READS
    ),
    "rejected_drafts_stay_computed": Mistake(
        f"{SCHEDULER}.update_from_output",
        "request.num_computed_tokens -= num_rejected",
        "pass",
        READS,
        options={"speculative_config": DRAFTS},
    ),
    # The number of blocks.
    "last_block_is_not_allocated": Mistake(
        f"{SINGLE}.allocate_new_blocks",
        "num_required_blocks = cdiv(num_tokens, self.block_size)",
        "num_required_blocks = num_tokens // self.block_size",
        ("predicted_is_taken",),
    ),
    "prediction_forgets_hits": Mistake(
        f"{SINGLE}.get_num_blocks_to_allocate",
        "return num_new_blocks + num_evictable_blocks",
        "return num_new_blocks",
        ("predicted_is_taken",),
    ),
    # What the worker gets, and the queues.
    "aborted_stays_running": Mistake(
        f"{SCHEDULER}.finish_requests",
        "self.running = remove_all(self.running, running_requests_to_remove)",
        "pass",
        ("every_request_in_one_queue", "engine_survives"),
    ),
    "worker_gets_no_hit_blocks": Mistake(
        f"{SCHEDULER}.schedule",
        "req_to_new_blocks[request_id] = self.kv_cache_manager.get_blocks(",
        "req_to_new_blocks[request_id] = new_blocks or (",
        READS,
    ),
    # Sliding windows.
    "window_is_freed_too_early": Mistake(
        f"{TYPES}:SlidingWindowManager.get_num_skipped_tokens",
        "num_computed_tokens - self.sliding_window + 1 - self.extra_retained_tokens",
        "num_computed_tokens - self.sliding_window // 4",
        ("null_block_is_nobody",),
        engine="window",
    ),
    "window_is_never_freed": Mistake(
        f"{SINGLE}.remove_skipped_blocks",
        "if num_skipped_tokens <= 0:",
        "if True:",
        ("no_more_is_held_than_is_read",),
        engine="window",
    ),
    "window_hit_has_too_few_blocks": Mistake(
        f"{TYPES}:SlidingWindowManager._contiguous_blocks_for_hit",
        "blocks = cdiv(window_size - 1, block_size)",
        "blocks = (window_size - 1) // block_size",
        ("null_block_is_nobody",),
        engine="window",
    ),
    # Mamba states.
    "state_is_taken_inside_a_block": Mistake(
        f"{SCHEDULER}._mamba_block_aligned_split",
        "return max(end - start, 0)",
        "return num_new_tokens",
        ("cached_block_holds_its_key", "state_read_is_state_at_computed"),
        engine="mamba",
        options={"mamba_cache_mode": "align"},
    ),
}

_planted = pytest.MonkeyPatch()


def plant(_llm: Any, name: str) -> None:
    """Put a mistake into vLLM, in the place of the one before; none if it has no name."""
    _planted.undo()
    if name:
        mistake = MISTAKES[name]
        line(mistake.place, mistake.old, mistake.new)(_planted)


def kinds(names: list[str]) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
    """The kinds of engines that some mistakes need: model, options, and their names."""
    found: dict[str, tuple[str, dict[str, Any], list[str]]] = {}
    for name in names:
        mistake = MISTAKES[name]
        kind = f"{mistake.engine} {mistake.options}"
        found.setdefault(kind, (mistake.engine, mistake.options, []))[2].append(name)
    yield from found.values()
