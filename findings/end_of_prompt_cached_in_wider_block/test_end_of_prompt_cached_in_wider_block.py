"""vLLM 0.32.0, full attention with a wider block than another attention group.

Hashes exist for each multiple of the smallest block size. Hits are multiples of the largest,
because no group is Mamba. The last prefix of a prompt that has a hash is nevertheless cached in
full attention's block, under a second hash, which no lookup uses. The output is correct; the result
is a hash map entry, and with KV events a `BlockStored`, that no lookup can hit.

Run: pytest --noconftest test_end_of_prompt_cached_in_wider_block.py
On 0.32.0 [released] fails and [patched] passes.
"""

from typing import Any

import pytest
import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

FAILS_WITH = "of the cached entries no lookup uses"

HASH_SIZE = 16
BLOCK_SIZE = 2 * HASH_SIZE
NUM_TOKENS = 2 * BLOCK_SIZE


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a prompt is cached only if hits are finer than the block."""
    released = FullAttentionManager._cache_partial_tail_block

    def cache(self: Any, request: Any, num_tokens: int) -> None:
        if self.cache_hit_alignment_tokens < self.block_size:
            released(self, request, num_tokens)

    monkeypatch.setattr(FullAttentionManager, "_cache_partial_tail_block", cache)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_manager() -> KVCacheManager:
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=BLOCK_SIZE, **shape)
    window = SlidingWindowSpec(block_size=HASH_SIZE, sliding_window=HASH_SIZE, **shape)
    groups = [KVCacheGroupSpec(["layer0"], full), KVCacheGroupSpec(["layer1"], window)]
    return KVCacheManager(
        KVCacheConfig(100, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=512,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=HASH_SIZE,
    )


def test_every_cached_entry_is_one_that_a_lookup_asks_for() -> None:
    manager = make_manager()
    init_none_hash(sha256)
    request = Request(
        request_id="r0",
        prompt_token_ids=list(range(NUM_TOKENS)),
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        block_hasher=get_request_block_hasher(HASH_SIZE, sha256),
    )
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
