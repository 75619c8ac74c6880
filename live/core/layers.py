"""The layers of a plan, and the config of its engine, as vLLM's objects."""

import copy
from collections.abc import Mapping
from typing import Any

from kvproof.live import build, importing  # noqa: F401 (vLLM is imported quietly)

# isort: split

import torch
from msgspec.structs import replace
from vllm.config import KVEventsConfig, KVTransferConfig

from kvproof.live import adapt
from kvproof.model.plans.engine import EnginePlan, Layer

DTYPES = {1: torch.int8, 2: torch.float16, 4: torch.float32}
"""The type of a number of so many bytes."""


NEWER = {"ring": "CircularBufferSpec", "rswa": "RSWASpec"}
"""The specs that not every release has, by the kind of their layers."""


def as_here(layer: Layer) -> Layer:
    """The layer that this vLLM has: older releases have full attention in place of some kinds."""
    import vllm.v1.kv_cache_interface as kinds

    name = NEWER.get(layer.kind, "")
    missing = name and build.spec_or_full(name) is kinds.FullAttentionSpec
    return replace(layer, kind="full", window=0) if missing else layer


def spec_of(plan: EnginePlan, layer: Layer) -> Any:
    """The spec of a layer."""
    import vllm.v1.kv_cache_interface as kinds

    if layer.kind == "mamba":
        attention = [each for each in plan.layers if each.kind != "mamba"]
        largest = max((spec_of(plan, each).page_size_bytes for each in attention), default=0)
        return kinds.MambaSpec(
            block_size=layer.block,
            shapes=((layer.heads, layer.width),),
            dtypes=(DTYPES[layer.bytes],),
            mamba_cache_mode=_states(plan),
            page_size_padded=max(largest, layer.content_bytes) if layer.padded else None,
            num_speculative_blocks=plan.drafts,
        )
    common: dict[str, Any] = {
        "block_size": layer.block,
        "num_kv_heads": layer.heads,
        "head_size": layer.width,
        "dtype": DTYPES[layer.bytes],
    }
    if layer.kind in ("mla", "hidden"):  # a token has no V
        kind = build.hidden_states() if layer.kind == "hidden" else kinds.MLAAttentionSpec
        return kind(**common, **_no_v(kind, common))
    if layer.kind == "window mla":
        narrow = getattr(kinds, "SlidingWindowMLASpec", kinds.SlidingWindowSpec)
        return narrow(**common, sliding_window=layer.window)
    if layer.kind == "window":
        return kinds.SlidingWindowSpec(**common, sliding_window=layer.window)
    if layer.kind == "chunked":
        return kinds.ChunkedLocalAttentionSpec(**common, attention_chunk_size=layer.window)
    if layer.kind in NEWER:
        kind = build.spec_or_full(NEWER[layer.kind])
        return kind(**common, **adapt.accepted(kind, rswa_window=layer.window))
    if layer.kind == "sink":
        return kinds.SinkFullAttentionSpec(**common, sink_len=layer.block)
    return kinds.FullAttentionSpec(**common)


def _states(plan: EnginePlan) -> str:
    """The states that a Mamba layer keeps, under vLLM's name for them."""
    if not plan.prefix_caching:
        return "none"
    return "all" if plan.every_state and adapt.keeps_every_state() else "align"


def _no_v(kind: Any, common: dict[str, Any]) -> dict[str, Any]:
    """The width of V for MLA, which differs between releases."""
    size = kind(**common).page_size_bytes
    one = common["block_size"] * common["head_size"] * common["dtype"].itemsize
    return adapt.accepted(kind, head_size_v=0) if size > one else {}


def config_of(
    plan: EnginePlan, override: int | None, connector: Mapping[str, Any] | None = None
) -> Any:
    """The config of an engine before its start-up. `override` is its `num_gpu_blocks_override`, and
    `connector` has settings of `KVTransferConfig`."""
    further: dict[str, Any] = {}
    hybrid = plan.hybrid
    if plan.drafts:
        further["speculative_config"] = build.drafter(plan.drafts, plan.drafter)
    if plan.connected:
        connector = {"kv_connector": "NixlConnector", "engine_id": "E"}
    if connector is not None:
        further["kv_transfer_config"] = KVTransferConfig(
            kv_role="kv_both",
            kv_load_failure_policy="recompute" if plan.recompute else "fail",
            **connector,
        )
        hybrid = hybrid and build.supports_groups(further["kv_transfer_config"])
    if plan.prefix_caching and not plan.without_events:
        further["kv_events_config"] = KVEventsConfig(enable_kv_cache_events=True, publisher="null")
    model = copy.copy(build.model_config())
    if plan.pools:
        model.runner_type = "pooling"
    mamba = next((each for each in plan.layers if each.kind == "mamba"), None)
    made = build.config_of(
        model,
        block_size=min((each.block for each in plan.layers if each.kind != "mamba"), default=8),
        chunk_tokens=plan.chunk_tokens,
        requests=plan.requests,
        prefix_caching=plan.prefix_caching,
        overlaps=plan.overlaps and plan.stages == 1,
        states=(_states(plan), mamba.block) if mamba else None,
        scheduling={
            "disable_hybrid_kv_cache_manager": not hybrid,
            "policy": "priority" if plan.by_priority else "fcfs",
            "runner_type": model.runner_type,
        },
        chosen=plan.config_options,
        tokens_max=plan.max_model_len,
        **further,
    )
    model.max_model_len = made.scheduler_config.max_model_len = plan.max_model_len
    model.original_max_model_len = -1 if plan.auto else plan.max_model_len
    made.parallel_config.pipeline_parallel_size = plan.stages
    made.parallel_config.decode_context_parallel_size = plan.shards
    made.scheduler_config.disable_hybrid_kv_cache_manager = not hybrid
    made.cache_config.num_gpu_blocks_override = override
    return made
