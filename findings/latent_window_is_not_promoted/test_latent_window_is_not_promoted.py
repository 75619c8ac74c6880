"""vLLM 0.32.0, a model with latent attention and latent sliding windows, without the hybrid KV
cache manager: the engine does not start, of TypeError.

Without the hybrid manager, layers with windows are given blocks as full attention. For this
`_promote_local_kv_cache_specs` makes a `MLAAttentionSpec` of each `SlidingWindowMLASpec`, with all
its fields but one. `MLAAttentionSpec` has no `bounded_replay`.
"""

from typing import Any

import torch
from vllm.v1.kv_cache_interface import MLAAttentionSpec, SlidingWindowMLASpec

from findings.helpers.utils import create_vllm_config

try:
    from vllm.v1.core import kv_cache_planning as planning
except ImportError:
    from vllm.v1.core import kv_cache_utils as planning

FAILS_WITH = "unexpected keyword argument 'bounded_replay'"


def test_each_layer_has_blocks() -> None:
    # A connector without `SupportsHMA` switches the hybrid manager off in the same way.
    config = create_vllm_config(block_size=64, disable_hybrid_kv_cache_manager=True)
    shape: dict[str, Any] = {"block_size": 64, "num_kv_heads": 1, "head_size": 576}
    latent = MLAAttentionSpec(**shape, dtype=torch.bfloat16)
    window = SlidingWindowMLASpec(**shape, dtype=torch.bfloat16, sliding_window=128)
    groups = planning.get_kv_cache_groups(config, {"latent": latent, "window": window})
    assert sorted(name for group in groups for name in group.layer_names) == ["latent", "window"]
