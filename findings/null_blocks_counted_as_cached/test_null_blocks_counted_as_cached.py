"""vLLM 0.32.0, a KV connector that loads, and Mamba layers in align mode.

A load leaves null blocks before the state that it loads. The manager counts them as cached blocks
of the request (`num_cached_block`), although nothing is hashed and nothing was hit. This is the
first of the two changes of vllm#42547. No effect on a user is known: the second test shows that the
same blocks are hashed and the same prefix is hit with and without the patch.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager
from vllm.v1.request import Request

from findings.helpers.utils import create_request, make_kv_cache_config

FAILS_WITH = "blocks are counted as cached"

BLOCK_SIZE = 16
NUM_LOADED = 4 * BLOCK_SIZE
MAMBA_GROUP = 1


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the blocks of the local hit are counted, unlike in the first change of vllm#42547."""
    released = SingleTypeKVCacheManager.add_local_computed_blocks

    def add(
        self: Any, request_id: str, new_computed_blocks: Sequence[Any], *tokens: int, **named: int
    ) -> None:
        released(self, request_id, new_computed_blocks, *tokens, **named)
        counted = self.num_cached_block[request_id]
        self.num_cached_block[request_id] = min(counted, len(new_computed_blocks))

    monkeypatch.setattr(SingleTypeKVCacheManager, "add_local_computed_blocks", add)


def start_load(request: Request) -> KVCacheManager:
    """Make the calls of the scheduler for a request that waits for remote KV."""
    config = make_kv_cache_config(BLOCK_SIZE, mamba_enabled=True, mamba_cache_mode="align")
    manager = KVCacheManager(
        config, max_model_len=1024, scheduler_block_size=BLOCK_SIZE, hash_block_size=BLOCK_SIZE
    )
    blocks, hit, _ = manager.get_computed_blocks(request)
    allocated = manager.allocate_slots(
        request,
        num_new_tokens=0,
        num_new_computed_tokens=hit,
        new_computed_blocks=blocks,
        num_external_computed_tokens=NUM_LOADED - hit,
        delay_cache_blocks=True,
    )
    assert allocated is not None
    return manager


def test_nothing_is_counted_before_anything_is_cached() -> None:
    request = create_request(num_tokens=NUM_LOADED + 1)
    manager = start_load(request)
    mamba = manager.coordinator.single_type_managers[MAMBA_GROUP]
    table = mamba.req_to_blocks[request.request_id]
    counted = mamba.num_cached_block[request.request_id]
    assert counted == 0, (
        f"While {NUM_LOADED} tokens are loaded and none is hit, {counted} Mamba blocks are counted "
        f"as cached: {[b.block_id for b in table[:counted]]}, where 0 is the null block"
    )


def test_what_is_hashed_and_hit_afterwards_does_not_depend_on_it() -> None:
    request, again = (create_request(None, NUM_LOADED + 1, NUM_LOADED + 1) for _ in range(2))
    manager = start_load(request)
    manager.cache_blocks(request, NUM_LOADED)
    managers = manager.coordinator.single_type_managers
    tables = [m.req_to_blocks[request.request_id] for m in managers]
    hashed = [[b.block_hash is not None for b in table] for table in tables]
    assert hashed == [[True] * 4, [False, False, False, True]]
    manager.free(request)
    manager.new_step_starts()
    assert manager.get_computed_blocks(again)[1] == NUM_LOADED
