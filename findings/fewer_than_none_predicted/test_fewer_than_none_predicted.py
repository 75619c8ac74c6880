"""vLLM 0.32.0, Mamba layers in align mode and speculative decoding. Compare vllm#46892.

A step with drafts gives a request one state block more, and the drafts are rejected. The next step
has no room for drafts and needs fewer blocks than the request holds, so the prediction is negative.
The request takes no block, and if the other groups take none either, this has no effect.

Run: pytest --noconftest test_fewer_than_none_predicted.py
On 0.32.0 [released] fails and [patched] passes.
"""

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

FAILS_WITH = "is predicted to take"

BLOCK_SIZE = 16
NUM_DRAFTS = 3
NUM_TOKENS = BLOCK_SIZE - 2


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """No group predicts less than 0 blocks."""
    released = MambaManager.get_num_blocks_to_allocate

    def at_least_none(self: Any, *args: Any, **named: Any) -> Any:
        return max(released(self, *args, **named), 0)

    monkeypatch.setattr(MambaManager, "get_num_blocks_to_allocate", at_least_none)


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
        num_speculative_blocks=NUM_DRAFTS,
    )
    groups = [KVCacheGroupSpec(["layer0"], full), KVCacheGroupSpec(["layer1"], mamba)]
    return KVCacheManager(
        KVCacheConfig(100, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=1024,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
    )


def make_request() -> Request:
    init_none_hash(sha256)
    return Request(
        request_id="r0",
        prompt_token_ids=list(range(NUM_TOKENS)),
        sampling_params=SamplingParams(max_tokens=9),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def test_no_less_than_none_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    manager, request = make_manager(), make_request()
    predicted: list[int] = []
    ask = manager.coordinator.get_num_blocks_to_allocate

    def noted(**named: Any) -> int:
        predicted.append(ask(**named))
        return predicted[-1]

    monkeypatch.setattr(manager.coordinator, "get_num_blocks_to_allocate", noted)
    assert manager.allocate_slots(request, NUM_TOKENS) is not None
    request.num_computed_tokens = NUM_TOKENS
    request.append_output_token_ids(7)
    # One token and three drafts pass the boundary; all drafts are rejected.
    assert manager.allocate_slots(request, 1 + NUM_DRAFTS) is not None
    request.num_computed_tokens += 1
    request.append_output_token_ids(8)
    # The step has room for one token, and it does not pass the boundary.
    free = manager.block_pool.get_num_free_blocks()
    assert manager.allocate_slots(request, 1) is not None
    taken = free - manager.block_pool.get_num_free_blocks()
    assert taken == 0
    assert predicted[-1] == taken, (
        f"A request that takes {taken} blocks is predicted to take {predicted[-1]}"
    )
