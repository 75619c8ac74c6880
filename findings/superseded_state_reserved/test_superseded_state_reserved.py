"""vLLM 0.32.0, a KV connector that loads, and Mamba layers in align mode. Compare vllm#46892.

D has cached a state at a block boundary, and P sends the state at the end of the prompt. The
request does not need or take the cached state, but the prediction includes it. A request that fits
exactly is refused.

Run: pytest --noconftest test_superseded_state_reserved.py
On 0.32.0 [released] fails and [patched] passes.
"""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.single_type_kv_cache_manager import MambaManager
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
)
from vllm.v1.request import Request

FAILS_WITH = "was refused"

BLOCK_SIZE = 16
NUM_CACHED = 2 * BLOCK_SIZE
NUM_LOADED = NUM_CACHED + 5
BUSY = 6 * BLOCK_SIZE  # tokens of a request that holds blocks meanwhile
MANY = 100
MODEL_LEN = 128  # a pool of 11 blocks and the null block can serve it


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached states before the state that will be loaded are not counted."""
    released = MambaManager.get_num_blocks_to_allocate

    def predicted(
        self: Any,
        request_id: str,
        num_tokens: int,
        new_computed_blocks: Sequence[Any],
        total_computed_tokens: int,
        *rest: Any,
        **named: Any,
    ) -> Any:
        count = released(
            self,
            request_id,
            num_tokens,
            new_computed_blocks,
            total_computed_tokens,
            *rest,
            **named,
        )
        if self.mamba_cache_mode != "align" or request_id in self.num_cached_block:
            return count
        first_kept = self.get_num_skipped_tokens(total_computed_tokens) // self.block_size
        superseded = new_computed_blocks[: max(first_kept, 0)]
        return count - self._get_num_evictable_blocks(superseded)

    monkeypatch.setattr(MambaManager, "get_num_blocks_to_allocate", predicted)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_manager(num_blocks: int) -> KVCacheManager:
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=BLOCK_SIZE, **shape)
    mamba = MambaSpec(
        block_size=BLOCK_SIZE,
        shapes=((2, 2),),
        dtypes=(torch.float32,),
        mamba_cache_mode="align",
    )
    groups = [KVCacheGroupSpec(["layer0"], full), KVCacheGroupSpec(["layer1"], mamba)]
    return KVCacheManager(
        KVCacheConfig(num_blocks, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=MODEL_LEN,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
    )


def make_request(name: str, num_tokens: int, first: int = 0) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(range(first, first + num_tokens)),
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


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
    if allocated is None:
        return None
    return free - manager.block_pool.get_num_free_blocks()


def serve_first(manager: KVCacheManager) -> None:
    """A request loads `NUM_CACHED` tokens, which are then cached, and ends."""
    request = make_request("r0", NUM_CACHED + 1)
    assert admit(manager, request, NUM_CACHED) is not None
    manager.cache_blocks(request, NUM_CACHED)
    manager.free(request)
    manager.new_step_starts()


def hold(manager: KVCacheManager) -> int:
    """Another request runs. Returns the blocks that it takes."""
    free = int(manager.block_pool.get_num_free_blocks())
    assert manager.allocate_slots(make_request("busy", BUSY, first=1000), BUSY) is not None
    return free - int(manager.block_pool.get_num_free_blocks())


def test_as_many_free_blocks_as_it_takes_are_enough() -> None:
    manager = make_manager(MANY)
    serve_first(manager)
    held = hold(manager)
    taken = admit(manager, make_request("r1", NUM_LOADED + 1), NUM_LOADED)
    assert taken is not None

    exact = make_manager(1 + held + taken)  # and the null block
    serve_first(exact)
    assert hold(exact) == held
    free = exact.block_pool.get_num_free_blocks()
    assert free == taken
    admitted = admit(exact, make_request("r1", NUM_LOADED + 1), NUM_LOADED)
    assert admitted == taken, (
        f"With {free} free blocks a request was refused that takes {taken} where there are more"
    )
