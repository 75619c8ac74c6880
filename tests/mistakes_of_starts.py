"""Mistakes of a start-up, planted in real vLLM, and the check that finds each."""

import dataclasses
from typing import Any

import pytest

from tests.in_vllm import Change, around, both, instead, nothing, rewritten

UTILS = "vllm.v1.core.kv_cache_utils"
CORE = "vllm.v1.engine.core"
KINDS = "vllm.v1.kv_cache_interface"


def _line(old: str, new: str) -> Change:
    """Another line in `get_kv_cache_configs`, which two modules have."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        from vllm.v1.core.kv_cache_utils import get_kv_cache_configs

        wrong = rewritten(get_kv_cache_configs, old, new)
        both(*(instead(f"{m}:get_kv_cache_configs", wrong) for m in (UTILS, CORE)))(patch)

    return plant


def _first_group(right: Any, config: Any, groups: Any) -> Any:
    return right(config, groups[:1])


def _full_attention_first(right: Any, config: Any, specs: Any) -> Any:
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    full = [name for name, each in specs.items() if isinstance(each, FullAttentionSpec)]
    return right(config, {full[0]: specs[full[0]], **specs})


def _half_the_stride(right: Any, config: Any, groups: Any, memory: int) -> Any:
    made = right(config, groups, memory)
    for tensor in made.kv_cache_tensors:
        tensor.block_stride //= 2
    return made


def _foreign_layer(right: Any, config: Any, groups: Any, memory: int) -> Any:
    made = right(config, groups, memory)
    made.kv_cache_tensors[0].layers = [*made.kv_cache_tensors[0].layers, "layers.99"]
    return made


def _smaller_window(right: Any, config: Any, layers: Any) -> Any:
    groups = right(config, layers)
    for group in groups:
        if hasattr(group.kv_cache_spec, "sliding_window") and group.kv_cache_spec.sliding_window:
            spec = group.kv_cache_spec
            group.kv_cache_spec = dataclasses.replace(spec, sliding_window=spec.sliding_window - 1)
    return groups


def _one_width(patch: pytest.MonkeyPatch) -> None:
    import vllm.v1.kv_cache_interface as kinds

    wrong = kinds.KVCacheSpec.max_num_blocks_per_req
    patch.setattr(kinds.UniformTypeKVCacheSpecs, "max_num_blocks_per_req", wrong)


def _nameless(right: Any, spec: Any) -> Any:
    from vllm.v1.kv_cache_interface import KVCacheSpecKind

    several = {right(each) for each in getattr(spec, "kv_cache_specs", {}).values()}
    return KVCacheSpecKind.UNKNOWN if len(several) > 1 else right(spec)


MISTAKES: dict[str, tuple[Change, str]] = {
    "numbers of another precision are not erased (vllm#47574)": (
        instead(
            f"{KINDS}:KVCacheConfig.needs_kv_cache_zeroing",
            property(lambda self: self.has_mamba_layers),
        ),
        "new_blocks_have_no_old_values",
    ),
    "the table of a group is not divided among ranks (vllm#50823)": (
        _one_width,
        "table_fits_its_layers",
    ),
    "a group of several kinds has no name (vllm#51218)": (
        around(f"{KINDS}:get_kv_cache_spec_kind", _nameless),
        "reported_kind_is_kept",
    ),
    "the null block is not counted": (
        _line("avail_mem - _pool_bytes_per_block(vllm_config, groups) if groups else ", ""),
        "admitted_length_is_served",
    ),
    "one group is counted (vllm#36030)": (
        around(f"{UTILS}:_max_memory_usage_bytes_from_groups", _first_group),
        "admitted_length_is_served",
    ),
    "the steps in flight are not counted (vllm#40946)": (
        around(
            f"{KINDS}:SlidingWindowSpec.max_admission_blocks_per_request",
            lambda right, self, *, max_model_len, **_: right(self, 0, max_model_len),
        ),
        "admitted_length_is_served",
    ),
    "a model of windows alone is not expected (vllm#48256)": (
        around(f"{UTILS}:get_kv_cache_groups", _full_attention_first),
        "engine_survives",
    ),
    "the richest worker decides": (
        _line("min_num_blocks = min(", "min_num_blocks = max("),
        "memory_is_not_exceeded",
    ),
    "each worker keeps its number": (
        _line("if kv_cache_config.num_blocks == min_num_blocks:", "if True:"),
        "engine_survives",
    ),
    "the override is ignored in the number": (
        around(f"{UTILS}:may_override_num_blocks", lambda _right, _config, blocks: blocks * 2),
        "override_is_the_number",
    ),
    "a block is smaller than its pages": (
        around(f"{UTILS}:_get_kv_cache_bytes_per_block", lambda right, *a: right(*a) - 4),
        "pages_lie_apart",
    ),
    "pages are too near": (
        around(f"{UTILS}:get_kv_cache_config_from_groups", _half_the_stride),
        "page_holds_its_block",
    ),
    "a layer of another worker": (
        around(f"{UTILS}:get_kv_cache_config_from_groups", _foreign_layer),
        "pages_are_of_own_layers",
    ),
    "half of the memory is used": (
        around(
            f"{UTILS}:get_kv_cache_config_from_groups",
            lambda right, config, groups, memory: right(config, groups, memory // 2),
        ),
        "memory_becomes_blocks",
    ),
    "a window is smaller": (
        around(f"{UTILS}:get_kv_cache_groups", _smaller_window),
        "layer_keeps_what_it_reads",
    ),
    "all stages are counted for each (vllm#33698)": (
        around(f"{UTILS}:_max_memory_usage_bytes_from_groups", lambda right, *a: 2 * right(*a)),
        "enough_memory_is_accepted",
    ),
    "pages without a common size have no other layout (vllm#48776)": (
        around(f"{UTILS}:_try_get_full_allocation_fallback_groups", lambda *_: None),
        "plenty_of_memory_is_enough",
    ),
    "the first worker decides on the length": (
        around(
            f"{UTILS}:_auto_fit_max_model_len",
            lambda right, config, groups, memory: right(config, groups[-1:], [max(memory)]),
        ),
        "enough_memory_is_accepted",
    ),
    "workers are not told the length": (
        nothing(f"{CORE}:EngineCore.collective_rpc"),
        "workers_know_the_length",
    ),
    "the concurrency of one group (vllm#48317)": (
        around(
            f"{UTILS}:get_max_concurrency_for_kv_cache_config",
            lambda right, config, made: right(
                config, dataclasses.replace(made, kv_cache_groups=made.kv_cache_groups[:1])
            ),
        ),
        "concurrency_is_what_fits",
    ),
    "the scheduler gives out a block more": (
        around(
            f"{CORE}:generate_scheduler_kv_cache_config",
            lambda right, made: dataclasses.replace(right(made), num_blocks=made[0].num_blocks + 1),
        ),
        "blocks_are_the_same_everywhere",
    ),
}
"""How each mistake is planted, and the check that finds it."""
