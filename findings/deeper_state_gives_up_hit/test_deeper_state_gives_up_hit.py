"""vLLM 0.32.0, NixlConnector, and Mamba layers in align mode.

On D the end of a prompt's attention blocks is evicted, and the Mamba state after it stays cached.
The state covers more tokens than attention, so `get_computed_blocks_for_connector` uses the common
hit of all groups, which is 0 tokens here. D loads again what its attention cache still has,
although P sends the state in any case. The code says that this is intended; it costs a transfer.
"""

from typing import Any

import pytest
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import Request

from findings.helpers.utils import create_request, make_kv_cache_config

FAILS_WITH = "are loaded again"

BLOCK_SIZE = 16
NUM_BLOCKS_CACHED = 4
NUM_LOADED = NUM_BLOCKS_CACHED * BLOCK_SIZE


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore a state beyond the attention cache; P sends the state at the end."""
    released = KVCacheManager.get_computed_blocks_for_connector

    def hit(self: Any, request: Request) -> Any:
        result = released(self, request)
        coordinator = self.coordinator
        full = getattr(coordinator, "full_attention_group_id", None)
        if full is None or not self.prefix_cache_lookup_enabled(request):
            return result
        blocks, lengths = coordinator.find_longest_cache_hit_per_group(
            request.block_hashes, request.num_tokens - 1
        )
        if lengths[full] <= result[1]:
            return result
        managers = coordinator.single_type_managers
        kept = tuple(
            group[: lengths[full] // manager.block_size] if length <= lengths[full] else []
            for group, length, manager in zip(blocks, lengths, managers, strict=True)
        )
        return self.create_kv_cache_blocks(kept), lengths[full], 0, True

    monkeypatch.setattr(KVCacheManager, "get_computed_blocks_for_connector", hit)


def start_load(manager: KVCacheManager, request: Request) -> int:
    """Make the calls of the scheduler when P offers `NUM_LOADED` tokens. Returns the number of
    tokens to load."""
    blocks, hit, _, _ = manager.get_computed_blocks_for_connector(request)
    allocated = manager.allocate_slots(
        request,
        num_new_tokens=0,
        num_new_computed_tokens=hit,
        new_computed_blocks=blocks,
        num_external_computed_tokens=NUM_LOADED - hit,
        delay_cache_blocks=True,
    )
    assert allocated is not None
    return NUM_LOADED - int(hit)


def test_only_what_attention_has_not_cached_is_loaded() -> None:
    config = make_kv_cache_config(BLOCK_SIZE, mamba_enabled=True, mamba_cache_mode="align")
    manager = KVCacheManager(
        config, max_model_len=1024, scheduler_block_size=BLOCK_SIZE, hash_block_size=BLOCK_SIZE
    )
    managers = manager.coordinator.single_type_managers
    first, again = (create_request(None, NUM_LOADED + 1, NUM_LOADED + 1) for _ in range(2))
    start_load(manager, first)
    manager.cache_blocks(first, NUM_LOADED)
    attention, state = (list(m.req_to_blocks[first.request_id]) for m in managers)
    manager.free(first)
    manager.new_step_starts()
    # In the recorded trace, requests come and go until the blocks are evicted. Here it is done by
    # hand.
    manager.evict_blocks({attention[-1].block_id})
    assert state[-1].block_hash is not None

    loaded, needed = start_load(manager, again), BLOCK_SIZE
    assert loaded == needed, (
        f"{NUM_LOADED - needed} of {NUM_LOADED} tokens are in D's attention cache, yet "
        f"{loaded} are loaded again; {needed} would be enough"
    )
    tables = [m.req_to_blocks[again.request_id] for m in managers]
    assert tables[0][: NUM_BLOCKS_CACHED - 1] == attention[:-1]
    assert [b.is_null for b in tables[1]] == [True] * (NUM_BLOCKS_CACHED - 1) + [False]
