"""vLLM 0.32.0, full attention and Mamba layers in align mode, prefix hits finer than a block
(`--prefix-match-unit`, or cache groups of unequal block sizes), and sparse retention (the default).

A prompt was served whose last hash boundary is inside a block. Two requests that continue from it
are scheduled in one step. The first request hits inside the block, gets a private copy and fills it
to the end; full attention caches the copy under the hash of the whole block. The second request
finds that hash. Its Mamba state is inside the block, so its hit is trimmed to this state, and it
gets a private copy of the copy. Both copies are made in one `blocks[dst] = blocks[src]`, which
reads all sources before it writes. The second request therefore gets the old content of the first
request's copy. No error is raised.

Under dense retention, the Mamba state at the end of the block is cached in the same step too, and
the second request waits for it.
"""

import torch
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import Request
from vllm.v1.worker.utils import copy_kv_cache_blocks_inplace

from findings.helpers.utils import create_request, make_kv_cache_config

FAILS_WITH = "is filled with what block"

NUM_BLOCKS, BLOCK_SIZE, HASH_SIZE = 100, 32, 16
WARM, LONG = BLOCK_SIZE + HASH_SIZE + 1, 4 * BLOCK_SIZE  # tokens of two prompts with one prefix


def compute(manager: KVCacheManager, request: Request, end: int) -> int | None:
    """Schedule tokens up to `end`. Returns the number of hit tokens, None if it has to wait."""
    if request.num_computed_tokens:
        assert manager.allocate_slots(request, end - request.num_computed_tokens) is not None
        request.num_computed_tokens = end
        return 0
    blocks, hit, request.shared_prefix_boundary = manager.get_computed_blocks(request)
    if manager.allocate_slots(request, end - hit, hit, blocks) is None:
        return None
    request.num_computed_tokens = end
    return int(hit)


def test_each_request_gets_the_block_it_hit() -> None:
    config = make_kv_cache_config(BLOCK_SIZE, mamba_enabled=True, mamba_cache_mode="align")
    config.prefix_cache_retention_interval = 0
    manager = KVCacheManager(
        config, max_model_len=2048, scheduler_block_size=BLOCK_SIZE, hash_block_size=HASH_SIZE
    )
    warm = create_request(num_tokens=WARM, common_prefix_len=WARM, block_size=HASH_SIZE)
    for end in (BLOCK_SIZE, BLOCK_SIZE + HASH_SIZE, WARM):  # the chunk ends of the align split
        manager.new_step_starts()
        compute(manager, warm, end)
        _, retained = manager.take_kv_cache_block_copies()
        manager.block_pool.free_blocks(retained)
    hit_block = manager.get_block_ids(warm.request_id)[0][1]
    manager.free(warm)

    manager.new_step_starts()
    q, r = (create_request(n, LONG, LONG, block_size=HASH_SIZE) for n in (2, 3))
    hits = {request.request_id: compute(manager, request, 2 * BLOCK_SIZE) for request in (q, r)}
    assert hits[q.request_id] == BLOCK_SIZE + HASH_SIZE
    # None: it waits for the next step
    assert hits[r.request_id] in (None, BLOCK_SIZE + HASH_SIZE)
    copies, _ = manager.take_kv_cache_block_copies()

    kv_cache = torch.arange(NUM_BLOCKS).unsqueeze(1).repeat(1, BLOCK_SIZE).contiguous()
    copy_kv_cache_blocks_inplace([kv_cache], NUM_BLOCKS, copies)
    for name in [name for name, hit in hits.items() if hit is not None]:
        block = manager.get_block_ids(name)[0][1]
        held = int(kv_cache[block, 0])
        assert held == hit_block, (
            f"Block {block} of {name} is filled with what block {held} held, and not with block "
            f"{hit_block}, which it hit: the copies were {[tuple(c) for c in copies]}"
        )
