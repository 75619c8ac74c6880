"""vLLM 0.32.0, layers of static sink attention (openPangu). vllm#44951, closed, mended the same for
another argument.

The coordinator makes the manager of each cache group with the same arguments. One of them,
`needs_kv_cache_zeroing`, is not among those of `SinkFullAttentionManager`: the engine dies at its
start.
"""

from typing import Any

import pytest
import torch
from vllm.v1.core.kv_cache_coordinator import get_kv_cache_coordinator
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager, SinkFullAttentionManager
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, SinkFullAttentionSpec

FAILS_WITH = "unexpected keyword argument"

BLOCK_SIZE = 16


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The manager takes what the others take."""

    def init(self: Any, kv_cache_spec: Any, **given: Any) -> None:
        FullAttentionManager.__init__(self, kv_cache_spec, **given)

    monkeypatch.setattr(SinkFullAttentionManager, "__init__", init)


def test_an_engine_with_sinks_starts() -> None:
    spec = SinkFullAttentionSpec(
        block_size=BLOCK_SIZE,
        num_kv_heads=1,
        head_size=8,
        dtype=torch.float32,
        sink_len=BLOCK_SIZE,
    )
    group = KVCacheGroupSpec(["layer0"], spec)
    coordinator = get_kv_cache_coordinator(
        kv_cache_config=KVCacheConfig(8, kv_cache_tensors=[], kv_cache_groups=[group]),
        max_model_len=64,
        max_in_flight_tokens=64,
        use_eagle=False,
        enable_caching=True,
        enable_kv_cache_events=False,
        dcp_world_size=1,
        pcp_world_size=1,
        scheduler_block_size=BLOCK_SIZE,
        hash_block_size=BLOCK_SIZE,
    )
    [manager] = coordinator.single_type_managers
    assert type(manager) is SinkFullAttentionManager
