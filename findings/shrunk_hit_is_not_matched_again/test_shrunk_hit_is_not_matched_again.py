"""vLLM 0.32.0, an EAGLE drafter with layers in two groups of sliding windows and one of full
attention.

Each group with drafter layers must match the block after a hit: the drafter's KV of the last token
of the hit depends on the token after it. The first window matches for a long hit. The second one
shortens the hit. The first window is asked again, and no longer for the block after the hit.

Run: pytest --noconftest test_shrunk_hit_is_not_matched_again.py
On 0.32.0 [released] fails and [patched] passes.
"""

from typing import Any

import pytest
import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

FAILS_WITH = "has not matched the block after the hit"

BLOCK_SIZE = 16
WINDOWS = (BLOCK_SIZE, 2 * BLOCK_SIZE)
PROMPT = range(10 * BLOCK_SIZE + 1)


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each window that is asked again matches the block after the hit again."""
    released = vars(SlidingWindowManager)["find_longest_cache_hit"].__func__

    def find(cls: Any, block_hashes: Any, max_length: int, *args: Any, **named: Any) -> Any:
        if not named["drop_eagle_block"]:
            named["drop_eagle_block"] = True
            max_length = min(max_length + BLOCK_SIZE, len(block_hashes) * BLOCK_SIZE)
        return released(cls, block_hashes, max_length, *args, **named)

    monkeypatch.setattr(SlidingWindowManager, "find_longest_cache_hit", classmethod(find))


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_manager() -> KVCacheManager:
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    specs = [
        FullAttentionSpec(block_size=BLOCK_SIZE, **shape),
        *(SlidingWindowSpec(block_size=BLOCK_SIZE, sliding_window=w, **shape) for w in WINDOWS),
    ]
    groups = [KVCacheGroupSpec([f"layer{i}"], spec) for i, spec in enumerate(specs)]
    return KVCacheManager(
        KVCacheConfig(100, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=1024,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        use_eagle=True,
    )


def make_request(name: str) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=[*PROMPT],
        sampling_params=SamplingParams(max_tokens=9),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK_SIZE, sha256),
    )


def test_a_drafter_has_matched_the_block_after_a_hit() -> None:
    manager, first = make_manager(), make_request("first")
    assert manager.allocate_slots(first, len(PROMPT)) is not None
    narrow, wide = manager.coordinator.single_type_managers[1:]
    # The test evicts block 8 of the narrow window and 9 of the wide.
    taken = narrow.req_to_blocks["first"][7], wide.req_to_blocks["first"][8]
    manager.free(first)
    manager.evict_blocks({block.block_id for block in taken})

    again = make_request("again")
    hit = manager.get_computed_blocks(again)[1]
    after = again.block_hashes[hit // BLOCK_SIZE]
    for group in (1, 2):
        assert hit == 0 or manager.block_pool.get_cached_block(after, [group]), (
            f"a prompt hits {hit} tokens; a window of {WINDOWS[group - 1]} tokens {FAILS_WITH}"
        )
