"""vLLM 0.32.0, a KV connector that loads within the step, and Mamba layers in align mode. Reported
as vllm#46892.

The state that the store loads needs one block, and the state after the chunk that the same step
computes needs another one. `MambaManager.get_num_blocks_to_allocate` counts one. If exactly one
block is missing, the request is admitted, and `get_new_blocks` raises in the middle of the step:
the engine dies.
"""

from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheManager

from findings.helpers.utils import create_request, make_kv_cache_config

FAILS_WITH = "raises in the middle of the step"

BLOCK_SIZE = 16
NUM_LOADED = 2 * BLOCK_SIZE
NUM_NEW = 5
MAX_MODEL_LEN = 64
NUM_BLOCKS = 1 + MAX_MODEL_LEN // BLOCK_SIZE + 2
"""The null block, attention for `max_model_len` tokens, and two states: what the check at start
requires."""


def blocks_taken(num_free: int | None = None) -> Any:
    """Admit a request of which the store loads all except the end, where other requests have left
    this number of blocks free. None if it is refused."""
    config = make_kv_cache_config(
        BLOCK_SIZE, mamba_enabled=True, mamba_cache_mode="align", num_blocks=NUM_BLOCKS
    )
    manager = KVCacheManager(
        config, MAX_MODEL_LEN, scheduler_block_size=BLOCK_SIZE, hash_block_size=BLOCK_SIZE
    )
    pool = manager.block_pool
    if num_free is not None:
        pool.get_new_blocks(pool.get_num_free_blocks() - num_free)
    free = pool.get_num_free_blocks()
    allocated = manager.allocate_slots(
        create_request(num_tokens=NUM_LOADED + NUM_NEW),
        num_new_tokens=NUM_NEW,
        num_external_computed_tokens=NUM_LOADED,
    )
    return None if allocated is None else free - pool.get_num_free_blocks()


def test_a_request_that_does_not_fit_is_refused() -> None:
    taken = blocks_taken()
    raised = {}
    for free in range(taken):
        try:
            assert blocks_taken(free) is None
        except ValueError as error:
            raised[free] = str(error)
    assert not raised, (
        f"A request that takes {taken} blocks is admitted with {list(raised)} free, and "
        f"get_new_blocks raises in the middle of the step: {raised}"
    )
    assert blocks_taken(taken) == taken
