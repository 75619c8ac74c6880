"""Mistakes that are planted in real vLLM: ordinary ones, each a changed line of one function.

`plant` is called in the engine's process, before the engine is built.
"""

from typing import Any, NamedTuple

import pytest

from tests.in_vllm import CORE, POOL, SCHEDULER, SINGLE, line

COUNTS = ("references_are_exact", "pool_adds_up", "no_block_free_and_held")


class Mistake(NamedTuple):
    """`old` is a part of the source of the function `place`, `new` stands in its stead. `names` are
    the invariants that name the mistake rightly."""

    place: str
    old: str
    new: str
    names: tuple[str, ...]


MISTAKES = {
    "hit_is_not_counted": Mistake(f"{POOL}.touch", "block.ref_cnt += 1", "pass", COUNTS),
    "aborted_keeps_its_blocks": Mistake(
        f"{SCHEDULER}._free_blocks",
        "self._free_request_blocks(request)",
        "request.status == RequestStatus.FINISHED_ABORTED or self._free_request_blocks(request)",
        ("idle_engine_keeps_nothing", "all_blocks_return", *COUNTS),
    ),
    "evicted_key_stays": Mistake(
        f"{POOL}._remove_cached_block_hashes",
        "self.cached_block_hash_to_block.pop(block_hash, block.block_id)",
        "self.cached_block_hash_to_block.get_one_block(block_hash)",
        ("hash_map_is_sound",),
    ),
    "hit_is_one_block_too_long": Mistake(
        f"{CORE}.kv_cache_coordinator:UnitaryKVCacheCoordinator.find_longest_cache_hit",
        "return hit_blocks, hit_length, 0",
        "return hit_blocks, hit_length + self.block_size"
        " * (0 < hit_length < max_cache_hit_length - self.block_size), 0",
        ("request_reads_its_own_prefix",),
    ),
    "preempted_keeps_its_counter": Mistake(
        f"{SINGLE}.pop_blocks_for_free",
        "self.num_cached_block.pop(request_id, None)",
        "pass",
        ("counter_counts_only_cached",),
    ),
}

_planted = pytest.MonkeyPatch()


def plant(_llm: Any, name: str) -> None:
    """Put a mistake into vLLM, in the place of the one before."""
    _planted.undo()
    mistake = MISTAKES[name]
    line(mistake.place, mistake.old, mistake.new)(_planted)
