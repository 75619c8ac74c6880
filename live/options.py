"""Options that deployments set, under vLLM's own names.

An option with its default is not passed: a vLLM that does not have the option is driven without it.
"""

from collections.abc import Callable
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from kvproof.model import config
from kvproof.model.errors import AdapterDrift
from kvproof.model.plans.config_options import Config, ConfigOptions

TO_DECODE = {"do_remote_decode": True, "do_remote_prefill": False}
"""The `kv_transfer_params` of a request that a router sends to P."""


def of_scheduler(cfg: config.EngineConfig) -> dict[str, Any]:
    """The options of an engine for vLLM's `SchedulerConfig`."""
    chosen: dict[str, Any] = {}
    if cfg.reserve_whole_prompt is not None:
        chosen["scheduler_reserve_full_isl"] = cfg.reserve_whole_prompt
    if cfg.long_prefill_tokens:
        chosen["long_prefill_token_threshold"] = cfg.long_prefill_tokens
    if cfg.watermark_blocks:
        chosen["watermark"] = watermark(cfg)
    return chosen


def of_cache(cfg: config.EngineConfig) -> dict[str, Any]:
    """The options of an engine for vLLM's `CacheConfig`."""
    return {"enable_mamba_shared_prefix_checkpoint": True} if cfg.prefix_checkpoint else {}


def chosen(options: ConfigOptions, of: Config, kind: Callable[..., Any]) -> dict[str, Any]:
    """The options for one of vLLM's configs, of this kind. Raises AdapterDrift where its class in
    this vLLM has none of this name that takes this value."""
    types = get_type_hints(kind)
    found = [each for each in options if each.of == of]
    for each in found:
        if not _takes(types.get(each.name), each.value):
            raise AdapterDrift(f"No config of this vLLM takes {each.words}", each.name)
    return {each.name: each.value for each in found}


def _takes(kind: Any, value: bool | int | str) -> bool:
    """Whether a type has a value. Of texts, those that it lists."""
    if get_origin(kind) in (Union, UnionType):
        return any(_takes(each, value) for each in get_args(kind))
    return (
        value in get_args(kind)
        if get_origin(kind) is Literal
        else type(value) is kind and (not isinstance(value, str))
    )


def watermark(cfg: config.EngineConfig) -> float:
    """The share of the pool that vLLM rounds down to `watermark_blocks` blocks. It lies between two
    numbers of blocks, so that no error of rounding changes the result."""
    return (cfg.watermark_blocks + 0.5) / cfg.num_blocks


def kv_role(cfg: config.EngineConfig) -> str:
    """The role of an engine in transfers. Where KV goes one way, P produces and D consumes."""
    if not cfg.one_way:
        return "kv_both"
    return "kv_producer" if cfg.produces else "kv_consumer"
