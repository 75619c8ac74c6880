"""vLLM 0.32.0, an EAGLE or MTP drafter with layers in a sliding-window group whose blocks are
narrower than those of another group.

A hit must be a multiple of the widest block, and for EAGLE the last block of a match is dropped. If
the match is shorter than the window, `SlidingWindowManager` aligns its length first, then drops
the block, and aligns again: the hit is one wide block shorter than the cache allows.

Run: pytest --noconftest test_window_prefix_aligned_before_drop.py
On 0.32.0 [released] fails and [patched] passes.
"""

from typing import Any

import pytest
import torch
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.utils.math_utils import cdiv
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

FAILS_WITH = "shorter than the window"

FULL_BLOCK_SIZE = 32
WINDOW_BLOCK_SIZE = 16
WINDOW = 1024
PROMPT_LENGTHS = (64, 512, 1024, 2048)


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Align a match that is shorter than the window once, after the EAGLE block is dropped."""
    released = SlidingWindowManager.find_longest_cache_hit.__func__

    def aligned_once(cls: Any, /, **kwargs: Any) -> Any:
        blocks, length = released(cls, **kwargs)
        spec, unit = kwargs["kv_cache_spec"], kwargs["alignment_tokens"]
        size = spec.block_size
        undropped = kwargs | {"drop_eagle_block": False, "alignment_tokens": size}
        match = released(cls, **undropped)[0]
        from_start = len(match[0]) <= cdiv(spec.sliding_window - 1, size)
        aligned = (len(match[0]) - 1) * size // unit * unit
        if kwargs["drop_eagle_block"] and from_start and aligned > length:
            return tuple(group[: aligned // size] for group in match), aligned
        return blocks, length

    monkeypatch.setattr(SlidingWindowManager, "find_longest_cache_hit", classmethod(aligned_once))


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


def make_manager() -> KVCacheManager:
    shape: dict[str, Any] = {"num_kv_heads": 1, "head_size": 4, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=FULL_BLOCK_SIZE, **shape)
    window = SlidingWindowSpec(block_size=WINDOW_BLOCK_SIZE, sliding_window=WINDOW, **shape)
    groups = [
        KVCacheGroupSpec(["layer0"], full),
        KVCacheGroupSpec(["layer1"], window, is_eagle_group=True),
    ]
    return KVCacheManager(
        KVCacheConfig(1000, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=4096,
        scheduler_block_size=FULL_BLOCK_SIZE,
        hash_block_size=WINDOW_BLOCK_SIZE,
        use_eagle=True,
    )


def make_request(name: str, num_tokens: int) -> Request:
    init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=list(range(num_tokens)),
        sampling_params=SamplingParams(max_tokens=1),
        pooling_params=None,
        block_hasher=get_request_block_hasher(WINDOW_BLOCK_SIZE, sha256),
    )


def hit_when_sent_again(num_tokens: int) -> int:
    """Number of tokens that the second of two requests with the same prompt hits."""
    manager = make_manager()
    first = make_request("r0", num_tokens)
    assert manager.allocate_slots(first, num_tokens) is not None
    manager.free(first)
    return int(manager.get_computed_blocks(make_request("r1", num_tokens))[1])


def test_a_prompt_shorter_than_the_window_hits_as_a_longer_one() -> None:
    hits = {num_tokens: hit_when_sent_again(num_tokens) for num_tokens in PROMPT_LENGTHS}
    # The last block of the match is dropped; what remains is a multiple of the full block.
    assert hits[2048] == 2048 - FULL_BLOCK_SIZE
    lost = {length: (hit, length - FULL_BLOCK_SIZE) for length, hit in hits.items()}
    lost = {length: pair for length, pair in lost.items() if pair[0] != pair[1]}
    assert not lost, (
        f"prompts shorter than the window hit less (prompt: hit, possible), all in tokens: {lost}"
    )
