"""vLLM 0.32.0, one KV-cache group and an EAGLE drafter.

With EAGLE, the last block of a match is dropped and computed again. A model with several groups
therefore first matches up to the end of the prompt. With one group the match must end before the
last token, as without EAGLE, and then a block is dropped all the same. A repeated prompt of full
blocks hits one block less than with two groups.

Run: pytest --noconftest test_eagle_drop_before_the_last_token.py
On 0.32.0 [released] fails and [patched] passes.
"""

from typing import Any

import pytest
import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_coordinator import UnitaryKVCacheCoordinator
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

FAILS_WITH = "with one group"

BLOCK_SIZE = 16
NUM_TOKENS = 4 * BLOCK_SIZE


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one group, look one block further before the last block is dropped, as with several
    groups."""
    released = UnitaryKVCacheCoordinator.find_longest_cache_hit

    def further(self: Any, block_hashes: Any, max_cache_hit_length: int) -> Any:
        if 0 in self.eagle_group_ids:
            whole = len(block_hashes) * self.block_size
            max_cache_hit_length = min(max_cache_hit_length + self.block_size, whole)
        return released(self, block_hashes, max_cache_hit_length)

    monkeypatch.setattr(UnitaryKVCacheCoordinator, "find_longest_cache_hit", further)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_manager(with_window: bool) -> KVCacheManager:
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    groups = [KVCacheGroupSpec(["layer0"], FullAttentionSpec(block_size=BLOCK_SIZE, **shape))]
    if with_window:
        window = SlidingWindowSpec(block_size=BLOCK_SIZE, sliding_window=2 * BLOCK_SIZE, **shape)
        groups.append(KVCacheGroupSpec(["layer1"], window))
    return KVCacheManager(
        KVCacheConfig(100, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=512,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        use_eagle=True,
    )


def make_request(name: str) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(range(NUM_TOKENS)),
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def hit_when_sent_again(manager: KVCacheManager) -> int:
    """Number of tokens that the second of two requests with the same prompt hits."""
    first = make_request("r0")
    assert manager.allocate_slots(first, NUM_TOKENS) is not None
    manager.free(first)
    return int(manager.get_computed_blocks(make_request("r1"))[1])


def test_one_group_hits_as_much_as_two() -> None:
    two = hit_when_sent_again(make_manager(with_window=True))
    one = hit_when_sent_again(make_manager(with_window=False))
    assert two == NUM_TOKENS - BLOCK_SIZE
    assert one == two, (
        f"Of {NUM_TOKENS} tokens, all cached, {one} are hit with one group and {two} with two"
    )
