"""The configuration of a running scheduler, in the terms of the invariants.

What kvproof may drive has limits, and so have the clusters of files: those of a running engine are
not its business. So the options are set after the limits were checked."""

from typing import Any, NamedTuple

from msgspec.structs import force_setattr

from kvproof.model.config import Cluster, Engine, Group


class Unknown(Exception):
    """An engine of a kind that the invariants do not know. The message says why in a line."""


class Shape(NamedTuple):
    """The cluster of one watched engine, and the manager of each cache group."""

    cluster: Cluster
    managers: tuple[Any, ...]

    @property
    def engine(self) -> Engine:
        """The engine's part of it."""
        return self.cluster.engines[0]


def shape(scheduler: Any, name: str) -> Shape:
    """The shape of a scheduler. Raises Unknown."""
    manager = scheduler.kv_cache_manager
    managers = tuple(manager.coordinator.single_type_managers)
    groups = scheduler.kv_cache_config.kv_cache_groups
    if len(managers) != len(groups):
        raise Unknown(f"it has {len(groups)} cache groups and {len(managers)} managers")
    config = scheduler.vllm_config
    engine = Engine(name, (Group("full", 1),))
    options = {
        "groups": tuple(map(_group, groups, managers)),
        "num_blocks": len(manager.block_pool.blocks),
        "chunk_tokens": scheduler.max_num_scheduled_tokens,
        "prefix_caching": bool(manager.enable_caching),
        "retention": getattr(scheduler.kv_cache_config, "prefix_cache_retention_interval", None),
        "store": scheduler.connector is not None,
        "policy": config.scheduler_config.policy,
        "max_requests": scheduler.max_num_running_reqs,
        "steps_in_flight": 2 if _overlaps(config) else 1,
        "drafts": scheduler.num_spec_tokens,
        "match_unit": _match_unit(scheduler, managers),
        "hash_lookahead_tokens": getattr(config, "num_hash_lookahead_tokens", 0),
        "long_prefill_tokens": config.scheduler_config.long_prefill_token_threshold,
    }
    cluster = Cluster(name, (engine,))
    for one, values in ((engine, options), (cluster, {"failures": 1})):
        for field, value in values.items():
            force_setattr(one, field, value)
        vars(one).clear()  # what was computed of the options before
    return Shape(cluster, managers)


def _group(group: Any, manager: Any) -> Group:
    """One cache group. The manager's block size counts the ranks of context parallelism, too."""
    spec = group.kv_cache_spec
    kinds = {each.__name__ for each in type(spec).__mro__}
    eagle = bool(getattr(group, "is_eagle_group", False) or getattr(manager, "use_eagle", False))
    if "MambaSpec" in kinds:
        mode = spec.mamba_cache_mode
        if mode not in ("align", "none"):
            raise Unknown(f"its Mamba layers have the cache mode {mode}")
        return Group("mamba", manager.block_size, mode=mode)
    if type(spec).__name__ == "SlidingWindowSpec":
        return Group("window", manager.block_size, spec.sliding_window, eagle=eagle)
    if type(spec).__name__ in ("FullAttentionSpec", "MLAAttentionSpec", "UniformTypeKVCacheSpecs"):
        return Group("full", manager.block_size, eagle=eagle)
    raise Unknown(f"it has a cache group of {type(spec).__name__}")


def _overlaps(config: Any) -> bool:
    """Whether a step may be scheduled before the output of the last one is there."""
    several = getattr(config, "max_concurrent_batches", 1) > 1
    return bool(several or config.scheduler_config.async_scheduling)


def _match_unit(scheduler: Any, managers: tuple[Any, ...]) -> int:
    """Tokens between two hashes, if they are nearer than all block sizes."""
    unit = getattr(scheduler, "hash_block_size", None) or 0
    return unit if unit and unit < min(each.block_size for each in managers) else 0
