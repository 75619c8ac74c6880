"""vLLM 0.32.0 with KV events (`--kv-events-config`), and a listener that replays them into a set.

Two blocks are cached under one hash: a prompt of full blocks is submitted again, and its last block
is computed again. One of the two is evicted, and `BlockRemoved` is sent, although the other block
still serves hits. A router that keeps a set of hashes loses the prefix (vllm#55092, open).
"""

from typing import Any

import pytest
from vllm.distributed.kv_events import BlockRemoved, BlockStored
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import Request

from findings.helpers.utils import create_request, make_kv_cache_config

FAILS_WITH = "is cached, and the events report it as removed"

BLOCK_SIZE = 16
NUM_BLOCKS = 1 + 4  # 0 is the null block
MODEL_LEN = 4 * BLOCK_SIZE  # as much as vLLM's check at start lets this pool serve


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The removal is reported when the last copy is evicted, as vllm#55092 would."""
    released = BlockPool._emit_block_removed_events

    def emit(self: Any, block_hashes: list[Any]) -> None:
        left = self.cached_block_hash_to_block.get_one_block
        released(self, [value for value in block_hashes if left(value) is None])

    monkeypatch.setattr(BlockPool, "_emit_block_removed_events", emit)


def serve(manager: KVCacheManager, request: Request) -> None:
    """Compute a prompt, and free it."""
    blocks, hit, _ = manager.get_computed_blocks(request)
    assert manager.allocate_slots(request, request.num_tokens - hit, hit, blocks) is not None
    manager.free(request)


def test_what_is_cached_is_what_the_events_say() -> None:
    manager = KVCacheManager(
        make_kv_cache_config(BLOCK_SIZE, num_blocks=NUM_BLOCKS),
        max_model_len=MODEL_LEN,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        enable_kv_cache_events=True,
    )
    first, again = (create_request(None, 2 * BLOCK_SIZE, 2 * BLOCK_SIZE) for _ in range(2))
    other = create_request(num_tokens=2 * BLOCK_SIZE)
    for request in (first, again, other):
        serve(manager, request)
    reported: set[Any] = set()
    for event in manager.take_events():
        if isinstance(event, BlockStored):
            reported |= set(event.block_hashes)
        elif isinstance(event, BlockRemoved):
            reported -= set(event.block_hashes)
    cached = manager.block_pool.get_cached_block(first.block_hashes[1], [0])
    assert cached is not None, "the second block of the prompt should still be cached once"
    value = int.from_bytes(first.block_hashes[1], "big") & ((1 << 64) - 1)
    assert {value, first.block_hashes[1]} & reported, (
        "The second block of the prompt is cached, and the events report it as removed: "
        f"block {cached[0].block_id} holds it, and {len(reported)} of the reported hashes "
        "are left"
    )
