"""vLLM 0.32.0, a model with latent attention and latent sliding windows, without the hybrid KV
cache manager: the engine does not start, of TypeError.

Without the hybrid manager, layers with windows are given blocks as full attention. For this
`_promote_local_kv_cache_specs` makes a `MLAAttentionSpec` of each `SlidingWindowMLASpec`, with all
its fields but one. `MLAAttentionSpec` has no `bounded_replay`.

Run: pytest --noconftest test_latent_window_is_not_promoted.py
On 0.32.0 [released] fails and [patched] passes.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.v1.kv_cache_interface import MLAAttentionSpec, SlidingWindowMLASpec

try:
    from vllm.v1.core import kv_cache_planning as planning
except ImportError:
    from vllm.v1.core import kv_cache_utils as planning

FAILS_WITH = "unexpected keyword argument 'bounded_replay'"


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other field that a spec without a window has not is left out, too."""
    replace_as = planning.replace_as

    def without(spec: Any, kind: Any, *, drop: tuple[str, ...] = (), **changes: Any) -> Any:
        return replace_as(spec, kind, drop=(*drop, "bounded_replay"), **changes)

    monkeypatch.setattr(planning, "replace_as", without)


@pytest.fixture(params=["released", "patched"], autouse=True)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "patched":
        patch(monkeypatch)


@pytest.fixture
def vllm_config(tmp_path: Path) -> VllmConfig:
    """Without the hybrid KV cache manager, as a connector without `SupportsHMA` makes it."""
    model = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64}
    model |= {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    model |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    (tmp_path / "config.json").write_text(json.dumps(model))
    return VllmConfig(
        model_config=ModelConfig(
            model=str(tmp_path), skip_tokenizer_init=True, dtype="float32", max_model_len=256
        ),
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=256,
            max_model_len=256,
            is_encoder_decoder=False,
            disable_hybrid_kv_cache_manager=True,
        ),
        cache_config=CacheConfig(block_size=64),
        device_config=DeviceConfig("cpu"),
    )


def test_each_layer_has_blocks(vllm_config: VllmConfig) -> None:
    shape: dict[str, Any] = {"block_size": 64, "num_kv_heads": 1, "head_size": 576}
    latent = MLAAttentionSpec(**shape, dtype=torch.bfloat16)
    window = SlidingWindowMLASpec(**shape, dtype=torch.bfloat16, sliding_window=128)
    groups = planning.get_kv_cache_groups(vllm_config, {"latent": latent, "window": window})
    assert sorted(name for group in groups for name in group.layer_names) == ["latent", "window"]
