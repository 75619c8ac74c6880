"""vLLM 0.32.0, an EAGLE or MTP drafter with layers in a sliding-window group whose blocks are
narrower than those of another group.

A hit must be a multiple of the widest block, and for EAGLE the last block of a match is dropped. If
the match is shorter than the window, `SlidingWindowManager` aligns its length first, then drops
the block, and aligns again: the hit is one wide block shorter than the cache allows.
"""

from dataclasses import replace

from vllm.v1.core.kv_cache_manager import KVCacheManager

from findings.helpers.utils import create_request, make_kv_cache_config

FAILS_WITH = "shorter than the window"

FULL_BLOCK_SIZE = 32
WINDOW_BLOCK_SIZE = 16
WINDOW = 1024
PROMPT_LENGTHS = (64, 512, 1024, 2048)


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
