"""vLLM 0.32.0, a KV connector that loads, and Mamba layers in align mode.

A load leaves null blocks before the state that it loads. The manager counts them as cached blocks
of the request (`num_cached_block`), although nothing is hashed and nothing was hit. This is the
first of the two changes of vllm#42547. No effect on a user is known: the second test shows that the
same blocks are hashed and the same prefix is hit with and without the patch.

Run: pytest --noconftest test_null_blocks_counted_as_cached.py
On 0.32.0 [released] of the first test fails, everything else passes.
"""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
)
from vllm.v1.request import Request

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


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_manager() -> KVCacheManager:
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
        KVCacheConfig(100, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=1024,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
    )


def make_request(name: str) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(range(NUM_LOADED + 1)),
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def start_load(manager: KVCacheManager, request: Request) -> None:
    """The calls of the scheduler for a request that waits for remote KV."""
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


def test_nothing_is_counted_before_anything_is_cached() -> None:
    manager = make_manager()
    request = make_request("r0")
    start_load(manager, request)
    mamba = manager.coordinator.single_type_managers[MAMBA_GROUP]
    table = mamba.req_to_blocks["r0"]
    counted = mamba.num_cached_block["r0"]
    assert counted == 0, (
        f"While {NUM_LOADED} tokens are loaded and none is hit, {counted} Mamba blocks are counted "
        f"as cached: {[b.block_id for b in table[:counted]]}, where 0 is the null block"
    )


def test_what_is_hashed_and_hit_afterwards_does_not_depend_on_it() -> None:
    manager = make_manager()
    request = make_request("r0")
    start_load(manager, request)
    manager.cache_blocks(request, NUM_LOADED)
    tables = [m.req_to_blocks["r0"] for m in manager.coordinator.single_type_managers]
    hashed = [[b.block_hash is not None for b in table] for table in tables]
    assert hashed == [[True] * 4, [False, False, False, True]]
    manager.free(request)
    manager.new_step_starts()
    _, hit, _ = manager.get_computed_blocks(make_request("r1"))
    assert hit == NUM_LOADED
