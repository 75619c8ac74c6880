"""This module puts the configuration of a running scheduler into the terms of the invariants.

What kvproof may drive has limits, and so have the clusters of files: those of a running engine are
not its business. So the options are set after the limits were checked.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import force_setattr

from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.needs import Need


class Unknown(Exception):
    """The invariants do not know engines of this kind. The message says why in a line."""


FULL = (
    *("FullAttentionSpec", "MLAAttentionSpec", "SinkFullAttentionSpec"),
    "HiddenStateCacheSpec",
)
"""Groups with a block for all tokens. Sinks are tokens of the model, beside those of a request."""

WINDOW = ("SlidingWindowSpec", "SlidingWindowMLASpec")

UNKNOWN = {
    "ChunkedLocalAttentionSpec": "which reads from the last multiple of a number of tokens on",
    "CrossAttentionSpec": "whose blocks hold the tokens of an encoder",
    "RSWASpec": "which reads the whole prompt and a window of the answer",
    "CircularBufferSpec": "which has one block for each request, written again and again",
    "HiSparseHotSpec": "whose blocks are copies of others",
    "HiSparseResidentSpec": "whose blocks are copies of others",
}
"""Groups that the model has no words for."""


def group(group: Any, manager: Any) -> Group:
    """Return one cache group in the terms of the invariants. Raises Unknown. The manager's block
    size counts the ranks of context parallelism, too."""
    spec, size = spec_of(group), manager.block_size
    name = type(spec).__name__
    if getattr(group, "host_resident", False):
        raise Unknown("it has a cache group in the memory of the host")
    eagle = bool(getattr(group, "is_eagle_group", False) or getattr(manager, "use_eagle", False))
    if "MambaSpec" in {each.__name__ for each in type(spec).__mro__}:
        mode = spec.mamba_cache_mode
        if mode not in ("align", "none"):
            raise Unknown(f"its Mamba layers have the cache mode {mode}")
        return _group("mamba", size, mode=mode)
    if getattr(spec, "bounded_replay", False):
        raise Unknown("its windows are not cached: the end of a hit is computed again")
    if name in WINDOW:
        return _group("window", size, window=spec.sliding_window, eagle=eagle)
    if name in FULL:
        return _group("full", size, eagle=eagle)
    why = f", {UNKNOWN[name]}" if name in UNKNOWN else ""
    raise Unknown(f"it has a cache group of {name}{why}")


def _group(kind: Any, size: int, **options: Any) -> Group:
    """Make a group, whose block size may be larger than what kvproof drives."""
    made = Group(kind, 1, **options)
    force_setattr(made, "block_size", size)
    return made


def spec_of(group: Any) -> Any:
    """Return the spec of a cache group. Layers of one kind that differ in the size of a token count
    as one."""
    spec = group.kv_cache_spec
    layers = getattr(spec, "kv_cache_specs", None)
    return next(iter(layers.values())) if layers else spec


def held_differently(groups: Iterable[Any]) -> dict[Need, str]:
    """Say what these groups keep otherwise than the checks know, with the reasons."""
    specs = [spec_of(each) for each in groups]
    hidden: dict[Need, str] = {}
    if any(getattr(spec, "extra_retained_tokens", 0) for spec in specs):
        why = "windows keep tokens for a drafter of several modules"
        hidden[Need.WINDOWS_KEPT] = why
    if any(getattr(spec, "num_prefill_checkpoint_blocks", 0) for spec in specs):
        why = "Mamba layers keep a state inside the last chunk of a prompt"
        hidden[Need.STATES_KEPT] = why
    return hidden


class Running(Cluster, frozen=True, dict=True):
    """The cluster of a watched engine. Its jobs are the requests that the scheduler has."""

    def job(self, name: str) -> Job:
        """Return the job of a request: its priority, and whether it is a session."""
        live = vars(self)["scheduler"].requests.get(name)
        job = Job("request", ".")
        force_setattr(job, "name", name)
        force_setattr(job, "priority", getattr(live, "priority", 0))
        force_setattr(job, "parts", (".",) if getattr(live, "resumable", False) else ())
        return job


class Shape(NamedTuple):
    """The cluster of one watched engine, and the manager of each cache group. `steps_most` is the
    most steps that may be in flight. `hidden` has the facts that this engine does not show, with
    the reason."""

    cluster: Cluster
    managers: tuple[Any, ...]
    steps_most: int
    hidden: Mapping[Need, str]

    @property
    def engine(self) -> EngineConfig:
        """The configuration of the engine."""
        return self.cluster.engines[0]


def shape(scheduler: Any, name: str) -> Shape:
    """Return the shape of a scheduler. Raises Unknown."""
    manager = scheduler.kv_cache_manager
    managers = tuple(manager.coordinator.single_type_managers)
    groups = scheduler.kv_cache_config.kv_cache_groups
    if len(managers) != len(groups):
        raise Unknown(f"it has {len(groups)} cache groups and {len(managers)} managers")
    config = scheduler.vllm_config
    engine = EngineConfig(name, (Group("full", 1),))
    options = {
        "groups": tuple(map(group, groups, managers)),
        "num_blocks": len(manager.block_pool.blocks),
        "chunk_tokens": scheduler.max_num_scheduled_tokens,
        "prefix_caching": bool(manager.enable_caching),
        "retention": _retention(scheduler),
        "store": scheduler.connector is not None,
        "policy": config.scheduler_config.policy,
        "max_requests": scheduler.max_num_running_reqs,
        "steps_in_flight": 2 if _steps_most(scheduler) > 1 else 1,
        "drafts": scheduler.num_spec_tokens,
        "match_unit": _match_unit(scheduler, managers),
        "hash_lookahead_tokens": getattr(config, "num_hash_lookahead_tokens", 0),
        "long_prefill_tokens": config.scheduler_config.long_prefill_token_threshold,
        "watermark_blocks": getattr(manager, "watermark_blocks", 0),
    }
    recomputes = getattr(scheduler, "recompute_kv_load_failures", True)
    cluster = Running(name, (engine,))
    failing = {"failures": 1, "load_failure": "recompute" if recomputes else "fail"}
    for one, values in ((engine, options), (cluster, failing)):
        for field, value in values.items():
            force_setattr(one, field, value)
        vars(one).clear()  # what was computed of the options before
    vars(cluster)["scheduler"] = scheduler
    # a driver chooses it otherwise for groups of sizes of which none divides the others
    hashed = getattr(scheduler, "hash_block_size", None) or engine.hash_block_size
    vars(engine)["hash_block_size"] = hashed
    _check_hits(engine, manager.coordinator)
    return Shape(cluster, managers, _steps_most(scheduler), held_differently(groups))


def _steps_most(scheduler: Any) -> int:
    """Return the number of steps that may be dispatched before the output of the first has arrived.
    The kind of scheduler counts too: a test may build one that its config would not choose."""
    config = scheduler.vllm_config
    kinds = {each.__name__ for each in type(scheduler).__mro__}
    overlaps = config.scheduler_config.async_scheduling or "AsyncScheduler" in kinds
    return max(int(getattr(config, "max_concurrent_batches", 1)), 2 if overlaps else 1)


def _retention(scheduler: Any) -> int | None:
    """Return the retention interval, in tokens."""
    name = "prefix_cache_retention_interval"
    resolved = getattr(scheduler.kv_cache_config, name, None)
    return getattr(scheduler.kv_cache_manager.coordinator, "retention_interval", resolved)


def _match_unit(scheduler: Any, managers: tuple[Any, ...]) -> int:
    """Return the number of tokens between two hashes, if it is smaller than all block sizes; else
    0."""
    unit = getattr(scheduler, "hash_block_size", None) or 0
    return unit if unit and unit < min(each.block_size for each in managers) else 0


def _check_hits(engine: EngineConfig, coordinator: Any) -> None:
    """Raise Unknown where hits end at other places than the invariants expect."""
    inside = bool(getattr(coordinator, "enable_partial_hash_hits", False))
    if engine.prefix_caching and inside != engine.partial_block_hits:
        raise Unknown(f"its prefix hits {'end' if inside else 'do not end'} inside a block")
