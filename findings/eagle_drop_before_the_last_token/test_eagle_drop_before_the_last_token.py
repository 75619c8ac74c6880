"""vLLM 0.32.0, one KV-cache group and an EAGLE drafter.

With EAGLE, the last block of a match is dropped and computed again. A model with several groups
therefore first matches up to the end of the prompt. With one group the match must end before the
last token, as without EAGLE, and then a block is dropped all the same. A repeated prompt of full
blocks hits one block less than with two groups.
"""

from typing import Any

import pytest
from vllm.v1.core.kv_cache_coordinator import UnitaryKVCacheCoordinator
from vllm.v1.core.kv_cache_manager import KVCacheManager

from findings.helpers.utils import create_request, make_kv_cache_config

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


def hit_when_sent_again(with_window: bool) -> int:
    """Return the number of tokens that the second of two requests with the same prompt hits."""
    manager = KVCacheManager(
        make_kv_cache_config(BLOCK_SIZE, swa_enabled=with_window, sw_size=2 * BLOCK_SIZE),
        max_model_len=512,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
        use_eagle=True,
    )
    first, again = (create_request(None, NUM_TOKENS, NUM_TOKENS) for _ in range(2))
    assert manager.allocate_slots(first, NUM_TOKENS) is not None
    manager.free(first)
    return int(manager.get_computed_blocks(again)[1])


def test_one_group_hits_as_much_as_two() -> None:
    two, one = hit_when_sent_again(with_window=True), hit_when_sent_again(with_window=False)
    assert two == NUM_TOKENS - BLOCK_SIZE
    assert one == two, (
        f"Of {NUM_TOKENS} tokens, all cached, {one} are hit with one group and {two} with two"
    )
