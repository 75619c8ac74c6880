"""vLLM 0.32.0, an EAGLE or MTP drafter with layers in a sliding-window group whose blocks are
narrower than those of another group.

A hit must be a multiple of the widest block, and for EAGLE the last block of a match is dropped. If
the match is shorter than the window, `SlidingWindowManager` aligns its length first, then drops
the block, and aligns again: the hit is one wide block shorter than the cache allows.
"""

from dataclasses import replace
from typing import Any

import pytest
from vllm.utils.math_utils import cdiv
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager

from findings.helpers.utils import create_request, make_kv_cache_config

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


def hit_when_sent_again(num_tokens: int) -> int:
    """Return the number of tokens that the second of two requests with the same prompt hits."""
    config = make_kv_cache_config(
        WINDOW_BLOCK_SIZE, swa_enabled=True, sw_size=WINDOW, num_blocks=1000
    )
    full, window = config.kv_cache_groups
    full.kv_cache_spec = replace(full.kv_cache_spec, block_size=FULL_BLOCK_SIZE)
    window.is_eagle_group = True
    manager = KVCacheManager(
        config,
        max_model_len=4096,
        scheduler_block_size=FULL_BLOCK_SIZE,
        hash_block_size=WINDOW_BLOCK_SIZE,
        use_eagle=True,
    )
    first, again = (create_request(None, num_tokens, num_tokens) for _ in range(2))
    assert manager.allocate_slots(first, num_tokens) is not None
    manager.free(first)
    return int(manager.get_computed_blocks(again)[1])


def test_a_prompt_shorter_than_the_window_hits_as_a_longer_one() -> None:
    hits = {num_tokens: hit_when_sent_again(num_tokens) for num_tokens in PROMPT_LENGTHS}
    # The last block of the match is dropped; what remains is a multiple of the full block.
    assert hits[2048] == 2048 - FULL_BLOCK_SIZE
    lost = {length: (hit, length - FULL_BLOCK_SIZE) for length, hit in hits.items()}
    lost = {length: pair for length, pair in lost.items() if pair[0] != pair[1]}
    assert not lost, (
        f"prompts shorter than the window hit less (prompt: hit, possible), all in tokens: {lost}"
    )
