"""vLLM 0.32.0, full attention and Mamba layers in align mode, prefix hits finer than a block
(`--prefix-match-unit`, or cache groups of unequal block sizes). No public report was found.

A short prompt was served, and its Mamba state inside a block is still cached; a burst of short
requests took its attention block. A long prompt with the same prefix is computed in one chunk. In
the same step a third request is admitted, which differs from it after one block. Attention has the
whole block cached since this moment; the available state is the old one, inside the block. The hit
therefore ends inside the block, and the block is copied. vLLM makes the copy before the step
computes, so the copy has the old content of the block. No error is raised.

vLLM waits one step for states that are cached in the same step (`cached_blocks_this_step`). It does
not wait for attention blocks, and need not if they are read in place.
"""

import torch
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import Request
from vllm.v1.worker.utils import copy_kv_cache_blocks_inplace

from findings.helpers.utils import create_request, make_kv_cache_config

FAILS_WITH = "is copied before"

NUM_BLOCKS, BLOCK_SIZE, HASH_SIZE = 20, 32, 16


def compute(manager: KVCacheManager, request: Request, end: int) -> int | None:
    """Schedule tokens up to `end`. Returns the number of hit tokens, None if the request must
    wait."""
    if request.num_computed_tokens:
        assert manager.allocate_slots(request, end - request.num_computed_tokens) is not None
        request.num_computed_tokens = end
        return 0
    blocks, hit, request.shared_prefix_boundary = manager.get_computed_blocks(request)
    if manager.allocate_slots(request, end - hit, hit, blocks) is None:
        return None
    request.num_computed_tokens = end
    return int(hit)


def serve(manager: KVCacheManager, request: Request, *ends: int) -> None:
    """Compute a request alone, one chunk in each step, and finish it."""
    for end in ends:
        manager.new_step_starts()
        compute(manager, request, end)
        _, retained = manager.take_kv_cache_block_copies()
        manager.block_pool.free_blocks(retained)
    manager.free(request)


def take_the_oldest_attention_block(manager: KVCacheManager) -> None:
    """Serve short requests at the same time, as many as needed; none of them caches anything."""

    def hashed() -> int:
        return sum(1 for block in manager.block_pool.blocks if block.block_hash is not None)

    most, held = hashed(), []
    while hashed() == most:
        manager.new_step_starts()
        held.append(create_request(num_tokens=1, block_size=HASH_SIZE))
        compute(manager, held[-1], 1)
    for request in held:
        manager.free(request)


def test_a_copied_block_has_been_filled() -> None:
    config = make_kv_cache_config(
        BLOCK_SIZE, mamba_enabled=True, mamba_cache_mode="align", num_blocks=NUM_BLOCKS
    )
    manager = KVCacheManager(
        config, max_model_len=512, scheduler_block_size=BLOCK_SIZE, hash_block_size=HASH_SIZE
    )
    warm = create_request(num_tokens=17, common_prefix_len=16, block_size=HASH_SIZE)
    serve(manager, warm, 16, 17)
    again = create_request(num_tokens=48, common_prefix_len=16, block_size=HASH_SIZE)
    serve(manager, again, BLOCK_SIZE, BLOCK_SIZE + HASH_SIZE)
    take_the_oldest_attention_block(manager)

    manager.new_step_starts()
    long = create_request(num_tokens=65, common_prefix_len=64, block_size=HASH_SIZE)
    assert compute(manager, long, 2 * BLOCK_SIZE) == 0
    source = manager.get_block_ids(long.request_id)[0][0]
    parting = create_request(num_tokens=64, common_prefix_len=32, block_size=HASH_SIZE)
    hit = compute(manager, parting, BLOCK_SIZE)
    copies, _ = manager.take_kv_cache_block_copies()
    if hit is None:
        return
    assert hit == HASH_SIZE

    # The copies of a step are made first. Then the step computes, and `long` fills its blocks.
    kv_cache = torch.zeros(NUM_BLOCKS, BLOCK_SIZE, dtype=torch.long)
    copy_kv_cache_blocks_inplace([kv_cache], NUM_BLOCKS, copies)
    kv_cache[source] = torch.tensor(long.prompt_token_ids[:BLOCK_SIZE])
    block = manager.get_block_ids(parting.request_id)[0][0]
    held = kv_cache[block, :HASH_SIZE].tolist()
    assert held == parting.prompt_token_ids[:HASH_SIZE], (
        f"Block {source} is copied before this step fills it: the {hit} tokens that "
        f"`parting` hits are {held} in its block {block}"
    )
