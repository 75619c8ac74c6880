"""vLLM 0.32.0, a KV connector that loads, and Mamba layers in align mode. Compare vllm#46892.

D has cached a state at a block boundary, and P sends the state at the end of the prompt. The
request does not need or take the cached state, but the prediction includes it. A request that fits
exactly is refused.
"""

from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import Request

from findings.helpers.utils import create_request, make_kv_cache_config

FAILS_WITH = "was refused"

BLOCK_SIZE = 16
NUM_CACHED = 2 * BLOCK_SIZE
NUM_LOADED = NUM_CACHED + 5
BUSY = 6 * BLOCK_SIZE  # tokens of a request that holds blocks meanwhile
MANY = 100
MODEL_LEN = 128  # a pool of 11 blocks and the null block can serve it


def admit(manager: KVCacheManager, request: Request, num_loaded: int) -> Any:
    """Admit a request that waits for remote KV. Returns the blocks taken, or None if it is
    refused."""
    free = manager.block_pool.get_num_free_blocks()
    blocks, hit, _, _ = manager.get_computed_blocks_for_connector(request)
    allocated = manager.allocate_slots(
        request,
        num_new_tokens=0,
        num_new_computed_tokens=hit,
        new_computed_blocks=blocks,
        num_external_computed_tokens=num_loaded - hit,
        delay_cache_blocks=True,
    )
    return None if allocated is None else free - manager.block_pool.get_num_free_blocks()


def serve_first(num_blocks: int) -> tuple[KVCacheManager, int]:
    """Let a request load `NUM_CACHED` tokens, which are then cached, and end. Then another one
    runs. Returns the blocks that this one takes, too."""
    config = make_kv_cache_config(
        BLOCK_SIZE, mamba_enabled=True, mamba_cache_mode="align", num_blocks=num_blocks
    )
    manager = KVCacheManager(
        config, MODEL_LEN, scheduler_block_size=BLOCK_SIZE, hash_block_size=BLOCK_SIZE
    )
    first = create_request(None, NUM_CACHED + 1, NUM_CACHED + 1)
    assert admit(manager, first, NUM_CACHED) is not None
    manager.cache_blocks(first, NUM_CACHED)
    manager.free(first)
    manager.new_step_starts()
    free = int(manager.block_pool.get_num_free_blocks())
    assert manager.allocate_slots(create_request(num_tokens=BUSY), BUSY) is not None
    return manager, free - int(manager.block_pool.get_num_free_blocks())


def test_as_many_free_blocks_as_it_takes_are_enough() -> None:
    manager, held = serve_first(MANY)
    request = create_request(None, NUM_LOADED + 1, NUM_LOADED + 1)
    taken = admit(manager, request, NUM_LOADED)
    assert taken is not None

    exact, held_again = serve_first(1 + held + taken)  # and the null block
    free = exact.block_pool.get_num_free_blocks()
    assert (held_again, free) == (held, taken)
    admitted = admit(exact, request, NUM_LOADED)
    assert admitted == taken, (
        f"With {free} free blocks a request was refused that takes {taken} where there are more"
    )
