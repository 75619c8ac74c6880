"""vLLM 0.32.0, Mamba layers in align mode and speculative decoding. Compare vllm#46892.

A step with drafts gives a request one state block more, and the drafts are rejected. The next step
has no room for drafts and needs fewer blocks than the request holds, so the prediction is negative.
The request takes no block, and if the other groups take none either, this has no effect.
"""

from dataclasses import replace
from typing import Any

import pytest
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.single_type_kv_cache_manager import MambaManager

from findings.helpers.utils import create_request, make_kv_cache_config

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


def test_no_less_than_none_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_kv_cache_config(BLOCK_SIZE, mamba_enabled=True, mamba_cache_mode="align")
    mamba = config.kv_cache_groups[1]
    mamba.kv_cache_spec = replace(mamba.kv_cache_spec, num_speculative_blocks=NUM_DRAFTS)
    manager = KVCacheManager(
        config, max_model_len=1024, scheduler_block_size=BLOCK_SIZE, hash_block_size=BLOCK_SIZE
    )
    request = create_request(num_tokens=NUM_TOKENS)
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
