"""vLLM 0.32.0, full attention with a wider block than another attention group.

Hashes exist for each multiple of the smallest block size. Hits are multiples of the largest,
because no group is Mamba. The last prefix of a prompt that has a hash is nevertheless cached in
full attention's block, under a second hash, which no lookup uses. The output is correct; the result
is a hash map entry, and with KV events a `BlockStored`, that no lookup can hit.
"""

from dataclasses import replace

from vllm.v1.core.kv_cache_manager import KVCacheManager

from findings.helpers.utils import create_request, make_kv_cache_config

FAILS_WITH = "of the cached entries no lookup uses"

HASH_SIZE = 16
BLOCK_SIZE = 2 * HASH_SIZE
NUM_TOKENS = 2 * BLOCK_SIZE


def test_every_cached_entry_is_one_that_a_lookup_asks_for() -> None:
    config = make_kv_cache_config(HASH_SIZE, swa_enabled=True, sw_size=HASH_SIZE)
    full = config.kv_cache_groups[0]
    full.kv_cache_spec = replace(full.kv_cache_spec, block_size=BLOCK_SIZE)
    manager = KVCacheManager(
        config, max_model_len=512, scheduler_block_size=BLOCK_SIZE, hash_block_size=HASH_SIZE
    )
    request = create_request(num_tokens=NUM_TOKENS, block_size=HASH_SIZE)
    assert manager.allocate_slots(request, NUM_TOKENS) is not None
    hashes = request.block_hashes
    asked_for = [hashes[i] for i in range(1, len(hashes), 2)]
    pool = manager.block_pool
    cached = [value for value in hashes if pool.get_cached_block(value, [0])]
    idle = [hashes.index(value) for value in cached if value not in asked_for]
    assert not idle, (
        f"{len(idle)} of the cached entries no lookup uses: full attention has blocks of "
        f"{BLOCK_SIZE} tokens and an entry for {(idle[0] + 1) * HASH_SIZE}"
    )
