"""Real schedulers without weights: an engine's config as vLLM's own config objects.

Nothing of vLLM is replaced, but for what the config of a model says: that its attention is latent,
or, for an engine that only encodes, that it has a config for images and no sizes of them. The model
folder has a `config.json` and nothing else; the adapter sets the cache groups that a model with
these layers would have.
"""

import copy
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kvproof.live import environment  # noqa: F401 (before vLLM is imported)

# isort: split

import torch
from msgspec import structs
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    KVCacheConfig,
    KVCacheGroupSpec,
)
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from kvproof.live import adapt, both, options
from kvproof.live.contract.aliases import follow
from kvproof.live.contract.lookup import last_line
from kvproof.live.encoder_settings import ENCODER
from kvproof.live.step_output import END_ID
from kvproof.model import config, state
from kvproof.model.config.extra_keys import ADAPTERS, ExtraKey, plain
from kvproof.model.errors import AdapterDrift
from kvproof.model.plans.config_options import ConfigOptions
from kvproof.model.plans.engine import Drafter

if TYPE_CHECKING:
    from vllm.config import SpeculativeConfig

MODEL = Path(__file__).with_name("model")
"""The folder of a model that has a config and no weights."""
_CONFIG = json.loads((MODEL / "config.json").read_text("utf-8"))
OTHER_MODEL = f"{MODEL}-other"
LATENT = {
    "FullAttentionSpec": "MLAAttentionSpec",
    "SlidingWindowSpec": "SlidingWindowMLASpec",
}
"""The specs of attention, each with the corresponding spec of latent attention."""
HEAD_BYTES = 16
"""The bytes of the values of a head, of any type."""
MODEL_TOKENS_MAX = int(_CONFIG["max_position_embeddings"])
TURNS = {"bidirectional_kv_xfer": True, "kv_recompute_threshold": 0}
"""The NIXL setting for transfers in both directions, for any number of tokens."""
POOL_BYTES_MAX = 2**30
"""The memory for the tensors of a pool, in bytes; the number of blocks says how much of it is
used."""
WITHOUT_BUDGET = {"supports_multimodal_inputs": False, "is_multimodal_model": False}
"""Attributes that keep vLLM from asking a model for the sizes of its images, because a plan gives
them."""
BLOCKS_FIRST = "BLHNC"
"""The layout that vLLM names where it refuses layers of several sizes in another one."""
SAME_NAME = "one-name"
"""The one name of all adapters and of the salt."""

LARGE_HEAD = 128
"""The values of a head of a model as users have it."""
LARGE = {
    **{"hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256},
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": LARGE_HEAD},
    "num_hidden_layers": 32,
}
"""The sizes of that model."""

HIDDEN = int(_CONFIG["hidden_size"])
"""The width of an embedded token."""


STATES = (3, 1), (1, 1)
"""The shapes of the two states of a Mamba layer: that of its convolution (x, B and C, one value
each), and that of its head. A rank with several heads of a state has as many times as much: first x
of each, then B, then C."""


class OfRank(NamedTuple):
    """The part of a layer on one rank of tensor parallelism: KV heads, and heads of a state."""

    heads: int = 1
    states: int = 1


class ServedModel(NamedTuple):
    """The model of an engine. Another engine over the same store may serve a model of another
    `name`, or with another type of values. With `latent`, its attention is latent (MLA): each layer
    has one head, which all ranks of tensor parallelism have. A model that only `encodes` images has
    no KV cache in which a prefix could be found. With `uneven`, the last layer of a group of
    attention keeps twice as much of a token as the others. With `hidden`, a drafter keeps the
    hidden states of each token in the last group, in one layer, and drafts nothing else. A `large`
    model has the sizes of one that users have; others have the smallest that vLLM accepts."""

    name: str = str(MODEL)
    dtype: str = "float32"
    latent: bool = False
    encodes: bool = False
    uneven: bool = False
    hidden: bool = False
    large: bool = False

    def changed(self, what: str, dtypes: Sequence[str]) -> "ServedModel":
        """The model with its "model" or its "dtype" changed; the next type is that after the
        current one in `dtypes`. A second change of the same kind restores the model."""
        if what == "model":
            return self._replace(name=OTHER_MODEL if self.name == str(MODEL) else str(MODEL))
        if what == "dtype":
            return self._replace(dtype=dtypes[1 - dtypes.index(self.dtype)])
        return self

    def unlike(self, other: "ServedModel") -> str:
        """The differences from another model, each followed by a colon; empty if there are none."""
        what = [self.dtype] * (self.dtype != other.dtype) + ["model"] * (self.name != other.name)
        return f"{' '.join(what)}:" if what else ""

    @property
    def config(self) -> ModelConfig:
        """The `ModelConfig` of this model. Engines of the first model share one, and those of the
        large one."""
        if self in (FIRST_MODEL, LARGE_MODEL):
            return model_config(self.large)
        made = copy.copy(model_config())
        made.model, made.dtype = self.name, self.values
        if self.latent:
            made.__class__ = type("LatentModelConfig", (ModelConfig,), {"use_mla": True})
        if self.encodes:
            made.__class__ = type("EncodingModelConfig", (ModelConfig,), WITHOUT_BUDGET)
            from vllm.config import MultiModalConfig

            made.multimodal_config = MultiModalConfig()
        return made

    @property
    def values(self) -> torch.dtype:
        """The type of the model's values."""
        made: torch.dtype = getattr(torch, self.dtype)
        return made

    @property
    def heads(self) -> int:
        """The number of the model's KV heads."""
        return 1 if self.latent else int(model_config(self.large).get_total_num_kv_heads())

    def on_rank(self, ranks: int, states: int) -> OfRank:
        """The part of a layer on one of `ranks` ranks, for a state of `states` heads."""
        return OfRank(max(self.heads // ranks, 1), states // ranks)

    def head(self, heads: int) -> dict[str, Any]:
        """The arguments of a spec for `heads` KV heads, of the smallest size that vLLM accepts
        unless the model is large."""
        size = LARGE_HEAD if self.large else HEAD_BYTES // self.values.itemsize
        return {"num_kv_heads": heads, "head_size": size, "dtype": self.values}

    def states(self, block_size: int, page_bytes: int) -> Any:
        """The spec of the layer for hidden states. Its pages are as wide as those of the other
        layers."""
        size = page_bytes // (block_size * self.values.itemsize)
        return hidden_states()(
            block_size=block_size, num_kv_heads=1, head_size=size, dtype=self.values
        )

    def of_layers(self, group: KVCacheGroupSpec) -> KVCacheGroupSpec:
        """A group with a spec for each of its layers, as a worker has it where the layers
        differ."""
        names, spec = group.layer_names, group.kv_cache_spec
        if not self.uneven or len(names) == 1 or not hasattr(spec, "num_kv_heads"):
            return group
        from vllm.v1.kv_cache_interface import UniformTypeKVCacheSpecs

        what = "head_size" if self.latent else "num_kv_heads"
        wide = replace(spec, **{what: 2 * getattr(spec, what)})
        specs = {**dict.fromkeys(names, spec), names[-1]: wide}
        return replace(
            group, kv_cache_spec=UniformTypeKVCacheSpecs(spec.block_size, kv_cache_specs=specs)
        )

    def of_worker(self, made: KVCacheConfig) -> KVCacheConfig:
        """The KV-cache config of a worker, made from that of its scheduler."""
        return replace(made, kv_cache_groups=list(map(self.of_layers, made.kv_cache_groups)))

    def kind(self, spec: str) -> Any:
        """The class of a spec of attention. Raises AdapterDrift where this vLLM has none."""
        import vllm.v1.kv_cache_interface as interface

        name = LATENT[spec] if self.latent else spec
        if not hasattr(interface, name):
            raise AdapterDrift(f"This vLLM has no {name}", name)
        return getattr(interface, name)


def hidden_states() -> Any:
    """The class of the spec for hidden states; older releases keep them as latent attention."""
    import vllm.v1.kv_cache_interface as interface

    return getattr(interface, "HiddenStateCacheSpec", interface.MLAAttentionSpec)


def spec_or_full(name: str) -> Any:
    """The class of a spec by its name; releases without it have full attention in its place."""
    import vllm.v1.kv_cache_interface as interface

    return getattr(interface, name, interface.FullAttentionSpec)


FIRST_MODEL = ServedModel()
LARGE_MODEL = ServedModel(dtype="bfloat16", large=True)
ALL_OF_IT = OfRank()


class Shape(NamedTuple):
    """The layers of an engine, beside its cache groups: so many `layers` in each group, with the
    tensors of a worker, or one without tensors if it is 0. They are those of the `served` model,
    and on one rank have the heads `of_rank`. `ranks` is the size of tensor parallelism, and
    `stripes` that of decode context parallelism. With `local`, a window is chunked local attention:
    a token reads from the last multiple of the window on. With `every_state`, a Mamba layer caches
    the state after each block that it computes, not only after the last block of a step."""

    layers: int = 0
    local: bool = False
    ranks: int = 1
    stripes: int = 1
    every_state: bool = False
    of_rank: OfRank = ALL_OF_IT
    served: ServedModel = FIRST_MODEL


PLAIN = Shape()


@functools.cache
def model_config(large: bool = False) -> ModelConfig:
    """The `ModelConfig` that all engines share, or that of a large model. Copy it to change it."""
    init_none_hash(sha256)
    return ModelConfig(
        model=str(MODEL),
        tokenizer=str(MODEL),
        skip_tokenizer_init=True,
        dtype="bfloat16" if large else "float32",
        seed=0,
        max_model_len=MODEL_TOKENS_MAX,
        hf_overrides=LARGE if large else {},
        **adapt.accepted(ModelConfig, enable_prompt_embeds=True),
    )


def spec_of(
    group: config.Group,
    drafts: int = 0,
    page_bytes: int | None = None,
    shape: Shape = PLAIN,
) -> Any:
    """The KV-cache spec of a group. Its sizes are the smallest that vLLM accepts; with
    `page_bytes`, attention has as many heads as fill such a page, and the states of a Mamba layer
    are padded to it. A Mamba layer keeps a state after each of `drafts` draft tokens."""
    served = shape.served
    head = served.head(shape.of_rank.heads)
    if group.attention and page_bytes is not None:
        own = spec_of(group, drafts, shape=shape).page_size_bytes
        fills = page_bytes // own
        head["head_size" if served.latent else "num_kv_heads"] *= fills
    if group.kind == "full":
        return served.kind("FullAttentionSpec")(block_size=group.block_size, **head)
    if group.kind == "window" and shape.local:
        from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec

        return ChunkedLocalAttentionSpec(
            block_size=group.block_size, attention_chunk_size=group.window, **head
        )
    if group.kind == "window":
        kind = served.kind("SlidingWindowSpec")
        return kind(block_size=group.block_size, sliding_window=group.window, **head)
    from vllm.v1.kv_cache_interface import MambaSpec

    return MambaSpec(
        block_size=group.block_size,
        shapes=tuple((size * shape.of_rank.states, rows) for size, rows in STATES),
        dtypes=(torch.float32,) * len(STATES),
        mamba_cache_mode="all" if shape.every_state else group.mode,
        num_speculative_blocks=drafts,
        page_size_padded=page_bytes,
    )


def kv_cache_config(cfg: config.EngineConfig, shape: Shape = PLAIN) -> KVCacheConfig:
    """The cache groups and the pool of an engine. A group with drafter layers is flagged, unless
    all attention groups have drafter layers: then vLLM flags none and assumes them for all. With
    several `stripes`, an attention block of a spec is the part of one rank."""
    here, layers = [on_rank(group, shape.stripes) for group in cfg.groups], shape.layers or 1
    some = cfg.drafter_is_apart
    pages = [spec_of(group, shape=shape).page_size_bytes for group in here]
    padded = max(pages) if layers > 1 else None
    groups = []
    for index, group in enumerate(here):
        flag = {"is_eagle_group": True} if group.eagle and some else {}
        names = [f"layers.{index * layers + layer}.attn" for layer in range(layers)]
        spec = spec_of(group, cfg.drafts, padded, shape)
        if shape.served.hidden and index == len(here) - 1:
            # Older releases know the layer by this name, later ones by its spec.
            names = [f"cache_only_layers.{index * layers}"]
            spec = shape.served.states(group.block_size, spec.page_size_bytes)
        groups.append(KVCacheGroupSpec(names, spec, **flag))
    return KVCacheConfig(
        num_blocks=cfg.num_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=groups,
        **adapt.retention(KVCacheConfig, cfg.retention),
    )


def on_rank(group: config.Group, ranks: int) -> config.Group:
    """A group as one of several ranks of decode context parallelism has it: tokens of an attention
    block lie on all of them in turn, and a state is whole on each."""
    if not group.attention:
        return group
    return structs.replace(group, block_size=group.block_size // ranks)


def with_tensors(vllm_config: VllmConfig, made: KVCacheConfig) -> KVCacheConfig:
    """The same KV-cache config, with the tensors that a worker allocates for it: one buffer, in
    which the layers of all groups share the bytes of a block
    (`get_kv_cache_config_from_groups`)."""
    laid = adapt.named("get_kv_cache_config_from_groups")
    cache = vllm_config.cache_config
    if hasattr(cache, "kv_cache_layout"):
        several = len(made.kv_cache_groups) > 1
        common = required_layout(vllm_config) or ("BLNHC" if several else "LBNHC")
        uneven = any(hasattr(g.kv_cache_spec, "kv_cache_specs") for g in made.kv_cache_groups)
        # Layers of several sizes in several groups must share the bytes of a block.
        cache.kv_cache_layout = BLOCKS_FIRST if several and uneven else common
    cache.num_gpu_blocks_override = made.num_blocks
    laid_out = laid(vllm_config, made.kv_cache_groups, POOL_BYTES_MAX)
    return replace(made, kv_cache_tensors=laid_out.kv_cache_tensors)


def supports_groups(transfer: Any) -> bool:
    """Whether a connector supports several cache groups (`SupportsHMA`). vLLM gives one that does
    not a single group, and switches the hybrid manager off."""
    import vllm.distributed.kv_transfer.kv_connector.factory as home

    factory = home.KVConnectorFactory
    if hasattr(factory, "supports_hma_config"):
        return bool(factory.supports_hma_config(transfer))
    children = transfer.kv_connector_extra_config.get("connectors", ())
    kinds = [factory.get_connector_class_by_name(each["kv_connector"]) for each in children]
    return all(map(home.supports_hma, [factory.get_connector_class(transfer), *kinds]))


def required_layout(vllm_config: VllmConfig) -> str | None:
    """The layout of the KV caches that the connector needs; None if any layout will do, or if there
    is no connector."""
    if vllm_config.kv_transfer_config is None:
        return None
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    kind: Any = KVConnectorFactory.get_connector_class(vllm_config.kv_transfer_config)
    layout: str | None = kind.get_required_kvcache_layout(vllm_config)
    return layout


def drafter(drafts: int, kind: Drafter = "ngram", ahead: int = 0) -> "SpeculativeConfig":
    """A drafter of this kind that predicts `drafts` tokens in a step. `ahead` is the number of
    tokens after a block that its hash covers."""
    from vllm.config import ParallelConfig, SpeculativeConfig

    target = model_config()
    method = "eagle" if "eagle" in kind else kind.removeprefix("parallel ").replace(" ", "_")
    return SpeculativeConfig(
        method=method,
        num_speculative_tokens=drafts,
        target_model_config=target,
        target_parallel_config=ParallelConfig(),
        **({} if kind == "ngram" else {"model": target.model}),
        parallel_drafting="parallel" in kind,
        **adapt.block_hashes(SpeculativeConfig, ahead),
    )


def extractor() -> "SpeculativeConfig":
    """A drafter that only keeps the hidden states of one layer of the model."""
    from vllm.config import ParallelConfig, SpeculativeConfig

    return SpeculativeConfig(
        method="extract_hidden_states",
        num_speculative_tokens=1,
        target_model_config=model_config(),
        target_parallel_config=ParallelConfig(),
        draft_model_config={"hf_config": {"eagle_aux_hidden_state_layer_ids": [0]}},
    )


def _further_configs(
    cfg: config.EngineConfig,
    load_failure: str,
    turns: bool,
    pushes: bool,
    connector: Mapping[str, Any] | None,
    events: bool,
    hidden: bool,
) -> dict[str, Any]:
    """The configs of optional parts: a connector, a drafter (one that keeps `hidden` states), KV
    events. A part that the engine does not have is not imported, so that kvproof can drive a vLLM
    without it."""
    from vllm import config as configs

    further: dict[str, Any] = {}
    common = {
        "kv_role": options.kv_role(cfg),
        "engine_id": cfg.name,
        "kv_load_failure_policy": load_failure,
    }
    if cfg.has_connector:
        further["kv_transfer_config"] = configs.KVTransferConfig(
            **both.settings(cfg, TURNS if turns else {}, pushes), **common
        )
    if connector is not None:
        further["kv_transfer_config"] = configs.KVTransferConfig(
            **{**common, "kv_role": "kv_both", **connector}
        )
    if cfg.drafts:
        kind: Drafter = "eagle" if cfg.lookahead else "ngram"
        of_engine = cfg.drafts, kind, cfg.hash_lookahead_tokens
        further["speculative_config"] = extractor() if hidden else drafter(*of_engine)
    extra = (connector or {}).get("kv_connector_extra_config", {})
    if ENCODER in extra:
        further[ENCODER] = configs.ECTransferConfig(**extra[ENCODER])
    if cfg.kv_events or (events and connector is not None):
        further["kv_events_config"] = configs.KVEventsConfig(
            enable_kv_cache_events=True, publisher="null"
        )
    return further


def config_of(
    model: ModelConfig,
    *,
    block_size: int,
    chunk_tokens: int,
    requests: int,
    prefix_caching: bool,
    overlaps: bool,
    states: tuple[str, int] | None,
    scheduling: Mapping[str, Any],
    caching: Mapping[str, Any] | None = None,
    declared: ModelConfig | None = None,
    chosen: ConfigOptions = (),
    tokens_max: int = MODEL_TOKENS_MAX,
    **further: Any,
) -> VllmConfig:
    """The config of an engine that serves a model, after vLLM's own checks of it.

    `block_size` is the smallest of its layers' attention in tokens, and a step has at most
    `chunk_tokens` tokens of `requests` requests. `states` says which states a Mamba layer keeps,
    under vLLM's name, and the tokens of one of its blocks. `scheduling` and `caching` have further
    settings of the scheduler and of the cache, and `further` the configs of optional parts. A model
    that vLLM's checks do not take is `declared` as another one. `chosen` are options that kvproof
    does not model; a request has `tokens_max` tokens. Raises AdapterDrift where this vLLM refuses
    the settings."""
    of_scheduler = {
        "max_num_seqs": requests,
        "max_num_batched_tokens": max(chunk_tokens, requests),
        "max_model_len": tokens_max if chosen else MODEL_TOKENS_MAX,
        "enable_chunked_prefill": True,
        "is_encoder_decoder": False,
        "async_scheduling": False,
        **scheduling,
        **options.chosen(chosen, "scheduler", SchedulerConfig),
    }
    of_cache = {
        "block_size": block_size,
        "enable_prefix_caching": prefix_caching,
        **(caching or {}),
        **options.chosen(chosen, "cache", CacheConfig),
    }
    made: VllmConfig = adapt.made(
        VllmConfig,
        model_config=declared or model,
        scheduler_config=adapt.made(SchedulerConfig, **of_scheduler),
        cache_config=adapt.made(CacheConfig, **of_cache),
        device_config=DeviceConfig("cpu"),
        **further,
    )
    # An engine computes these values from its model's layers and its platform; here they are set.
    # The CPU platform would switch overlapping steps off. A budget without the slots of drafts, or
    # none, is what vLLM's checks made of the number of tokens that they were given.
    made.model_config = model
    made.scheduler_config.async_scheduling = overlaps
    if (budget := made.scheduler_config.max_num_scheduled_tokens) is not None:
        more = made.scheduler_config.max_num_batched_tokens - chunk_tokens
        made.scheduler_config.max_num_scheduled_tokens = max(1, budget - more)
    made.scheduler_config.max_num_batched_tokens = chunk_tokens
    made.cache_config.block_size = block_size
    made.cache_config.enable_prefix_caching = prefix_caching
    if states is not None:
        made.cache_config.mamba_cache_mode, made.cache_config.mamba_block_size = states
    return made


def made_of(vllm_config: VllmConfig, caches: KVCacheConfig, sizes: Mapping[str, int]) -> Scheduler:
    """The scheduler with this config, these KV caches and these block sizes, by vLLM's names."""
    chosen: type[Scheduler] = vllm_config.scheduler_config.get_scheduler_cls()
    return chosen(
        vllm_config=vllm_config,
        kv_cache_config=caches,
        structured_output_manager=StructuredOutputManager(vllm_config),
        log_stats=True,
        **sizes,
    )


def scheduler(
    cfg: config.EngineConfig,
    load_failure: str,
    turns: bool = False,
    pushes: bool = False,
    connector: Mapping[str, Any] | None = None,
    events: bool = True,
    shape: Shape = PLAIN,
    replica: int | None = None,
    make: Callable[[VllmConfig, KVCacheConfig, Mapping[str, int]], Scheduler] = made_of,
    chosen: ConfigOptions = (),
) -> Scheduler:
    """A real Scheduler of this engine, an AsyncScheduler where its steps overlap. It has the
    engine's NIXL connector (pull in one or both directions, or push) or store, if any, or the
    `connector` with these settings of `KVTransferConfig`, and then KV events (`events`). `replica`
    is its number among the engines of data parallelism, without experts. An engine core may `make`
    the scheduler, of its config and its KV caches. `chosen` are options that kvproof does not
    model."""
    served = shape.served
    sizes = [group.block_size for group in cfg.groups]
    mamba = next((g for g in cfg.groups if g.kind == "mamba"), None)
    vllm_config = config_of(
        served.config,
        declared=None if served.encodes or served.large else model_config(),
        block_size=min(sizes),
        chunk_tokens=cfg.chunk_tokens,
        requests=cfg.max_requests,
        prefix_caching=cfg.prefix_caching,
        overlaps=cfg.overlaps,
        states=("all" if shape.every_state else mamba.mode, mamba.block_size) if mamba else None,
        scheduling={
            "policy": cfg.policy,
            # Set below; older releases refuse an explicit False beside KV events.
            "disable_hybrid_kv_cache_manager": len(cfg.groups) == 1,
            **options.of_scheduler(cfg),
        },
        caching={
            **options.of_cache(cfg),
            # Connectors read it there; the scheduler gets the size of hashes below.
            **adapt.accepted(CacheConfig, prefix_match_unit=cfg.match_unit or None),
        },
        chosen=chosen,
        **_further_configs(cfg, load_failure, turns, pushes, connector, events, served.hidden),
    )
    vllm_config.scheduler_config.disable_hybrid_kv_cache_manager = connector is not None and not (
        supports_groups(vllm_config.kv_transfer_config)
    )
    cache = vllm_config.cache_config
    cache.block_size = min(on_rank(group, shape.stripes).block_size for group in cfg.groups)
    parallel = vllm_config.parallel_config
    parallel.decode_context_parallel_size = shape.stripes
    parallel.tensor_parallel_size = parallel.world_size = shape.ranks
    if replica is not None:
        # The replicas share it, and no other process: files in shared memory have this name.
        vllm_config.instance_id = f"kvproof-{os.getpid()}"
        parallel.data_parallel_index = replica
    cache.num_gpu_blocks = cfg.num_blocks
    cache.enable_prefix_caching = cfg.prefix_caching and not served.encodes
    adapt.validate(vllm_config)
    caches = kv_cache_config(cfg, shape)
    if shape.layers:
        from vllm.v1.core.kv_cache_utils import generate_scheduler_kv_cache_config

        of_worker = with_tensors(vllm_config, served.of_worker(caches))
        caches = generate_scheduler_kv_cache_config([of_worker])
    with adapt.retention_variable(cfg.retention):
        of_blocks = adapt.scheduler_block_sizes(Scheduler, max(sizes), cfg.hash_block_size)
        built = make(vllm_config, caches, of_blocks)
    manager = follow("KVCacheManager", follow("Scheduler", built).kv_cache_manager)
    adapt.check_retention(manager.coordinator, cfg.retention)
    adapt.check_partial(manager.coordinator, cfg.partial_block_hits)
    adapt.check_hash_size(built, cfg.hash_block_size)
    adapt.check_hash_lookahead(built, cfg.hash_lookahead_tokens)
    return built


def as_planned(cfg: config.EngineConfig) -> config.EngineConfig:
    """The engine with drafter layers where the planning of this vLLM finds them. Where it finds
    none, vLLM takes all attention groups for the drafter's (vllm#54094). An engine whose groups the
    planning refuses stays as it is. Raises AdapterDrift where the planning fails otherwise, and
    UsageError where kvproof does not drive the planned groups."""
    from vllm.v1.core.kv_cache_utils import get_kv_cache_groups

    made = scheduler(cfg, "fail")
    own = made.kv_cache_config.kv_cache_groups
    specs = {name: group.kv_cache_spec for group in own for name in group.layer_names}
    if hasattr(made.vllm_config.cache_config, "kv_cache_layout"):
        made.vllm_config.cache_config.kv_cache_layout = BLOCKS_FIRST
    try:
        planned = get_kv_cache_groups(made.vllm_config, specs)
    except (AssertionError, NotImplementedError, ValueError):  # this vLLM refuses such groups
        return cfg
    except Exception as error:
        why = f"The planning of this vLLM needs more than the kit has ({last_line(error)})"
        raise AdapterDrift(why, "get_kv_cache_groups") from error
    found = {n for group in planned if adapt.has_drafter(group) for n in group.layer_names}
    marked = [not found or not found.isdisjoint(group.layer_names) for group in own]
    groups = tuple(
        structs.replace(group, eagle=group.attention and is_so)
        for group, is_so in zip(cfg.groups, marked, strict=True)
    )
    return structs.replace(cfg, groups=groups)


def token_ids(tokens: str) -> list[int]:
    """The token ids of symbolic tokens."""
    return [ord(token) for token in plain(tokens)]


def extra_keys(extra_key: ExtraKey) -> dict[str, Any]:
    """The salt or the adapter of a request, as arguments of `Request`. A salt and an adapter have
    one name: their keys must differ all the same (vllm#44701)."""
    if not extra_key:
        return {}
    if extra_key == "salt":
        return {"cache_salt": SAME_NAME}
    from vllm.lora.request import LoRARequest

    number = ADAPTERS.index(extra_key) + 1
    return {"lora_request": LoRARequest(SAME_NAME, number, f"/adapters/{extra_key}")}


def request(
    cfg: config.EngineConfig,
    known: state.Request,
    params: dict[str, Any] | None,
    priority: int = 0,
    arrival: int = 0,
    resumable: bool = False,
    more: Mapping[str, Any] | None = None,
    reports_hits: bool = False,
) -> Request:
    """A real Request as it arrives, with token ids or embeddings. `arrival` is the number of
    earlier arrivals on its engine, parts of sessions included. A session is `resumable` until its
    last part is answered. `more` has further arguments of `Request`. `reports_hits` is as in `Job`.
    """
    extra: dict[str, Any] = {"kv_transfer_params": params} if params else {}
    if reports_hits:
        extra["kv_cache_report_mode"] = "full"
    sampling = SamplingParams(
        max_tokens=known.max_tokens,
        ignore_eos=True,
        stop_token_ids=[END_ID] if known.stops else None,
        extra_args=extra or None,
    )
    ids = token_ids(known.prompt)
    further: dict[str, Any] = dict(more or {})
    if known.embeds:
        further["prompt_embeds"] = torch.tensor([[float(i)] * HIDDEN for i in ids])
    if priority:
        further["priority"] = priority
    if resumable:
        further["resumable"] = True
    return Request(
        request_id=known.id,
        prompt_token_ids=None if known.embeds else ids,
        sampling_params=sampling,
        pooling_params=None,
        arrival_time=float(arrival),
        **further,
        block_hasher=get_request_block_hasher(
            cfg.hash_block_size,
            sha256,
            **adapt.hasher(get_request_block_hasher, cfg.hash_lookahead_tokens),
        ),
    )
