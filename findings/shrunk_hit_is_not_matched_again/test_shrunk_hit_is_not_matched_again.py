"""vLLM 0.32.0, an EAGLE drafter with layers in two groups of sliding windows and one of full
attention.

Each group with drafter layers must match the block after a hit: the drafter's KV of the last token
of the hit depends on the token after it. The first window matches for a long hit. The second one
shortens the hit. The first window is asked again, and no longer for the block after the hit.
"""

from dataclasses import replace

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import KVCacheGroupSpec

from findings.helpers.utils import create_request, make_kv_cache_config

FAILS_WITH = "has not matched the block after the hit"

BLOCK_SIZE = 16
WINDOWS = (BLOCK_SIZE, 2 * BLOCK_SIZE)
NUM_TOKENS = 10 * BLOCK_SIZE + 1


def test_a_drafter_has_matched_the_block_after_a_hit() -> None:
    config = make_kv_cache_config(BLOCK_SIZE, swa_enabled=True, sw_size=WINDOWS[0])
    narrow = config.kv_cache_groups[1].kv_cache_spec
    wide = KVCacheGroupSpec(["layer4"], replace(narrow, sliding_window=WINDOWS[1]))
    config.kv_cache_groups.append(wide)
    manager = KVCacheManager(
        config,
        max_model_len=1024,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        use_eagle=True,
    )
    first, again = (create_request(None, NUM_TOKENS, NUM_TOKENS) for _ in range(2))
    assert manager.allocate_slots(first, NUM_TOKENS) is not None
    tables = [m.req_to_blocks[first.request_id] for m in manager.coordinator.single_type_managers]
    # The test evicts block 8 of the narrow window and 9 of the wide.
    taken = tables[1][7], tables[2][8]
    manager.free(first)
    manager.evict_blocks({block.block_id for block in taken})

    hit = manager.get_computed_blocks(again)[1]
    after = again.block_hashes[hit // BLOCK_SIZE]
    for group in (1, 2):
        assert hit == 0 or manager.block_pool.get_cached_block(after, [group]), (
            f"a prompt hits {hit} tokens; a window of {WINDOWS[group - 1]} tokens {FAILS_WITH}"
        )
