"""The differences between releases of vLLM: one small function for each changed name.

A call gets only the arguments that the function of this release has. What a release cannot do
raises AdapterDrift: this is no defect of the release, and a check that needs it is UNKNOWN there.
"""

import contextlib
import functools
import importlib
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args, get_type_hints

from kvproof.live.contract.lookup import may_take
from kvproof.live.contract.table import TABLE
from kvproof.model.errors import AdapterDrift

RETENTION_VARIABLE = "VLLM_PREFIX_CACHE_RETENTION_INTERVAL"

CONFIG = "VllmConfig"
"""The entry of an AdapterDrift where the config of an engine refuses its settings."""


def accepted(callee: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """The arguments that the callee can take."""
    return {name: value for name, value in arguments.items() if may_take(callee, name)}


def first(homes: Sequence[str]) -> Any:
    """The first of these objects (`module:name`) that this release has. Raises AdapterDrift where
    it has none."""
    for module, name in (home.split(":") for home in homes):
        with contextlib.suppress(ModuleNotFoundError):
            found = getattr(importlib.import_module(module), name, None)
            if found is not None:
                return found
    raise AdapterDrift(f"This vLLM has none of {', '.join(homes)}", homes[0].split(":")[1])


def named(name: str) -> Any:
    """The class or function of vLLM that the contract names, at the first of its places that this
    release has. Raises AdapterDrift where it has none."""
    return first(_homes(name))


@functools.cache
def _homes(name: str) -> tuple[str, ...]:
    """The places of a name of a module in the contract, the newest release first."""
    known = (each.places for each in TABLE if each.places[0].module)
    places = next(each for each in known if each[0].names[:1] == (name,))
    return tuple(f"{each.module}:{each.names[0]}" for each in places if not each.absent)


def hashes_for(hashes: Sequence[Any], hash_size: int, block_size: int) -> Sequence[Any]:
    """The block hashes for another block size."""
    if hash_size == block_size:
        return hashes
    from vllm.v1.core.kv_cache_utils import BlockHashListWithBlockSize

    listed: Sequence[Any] = BlockHashListWithBlockSize(hashes, hash_size, block_size)
    return listed


def block_hashes(drafter: Callable[..., Any], ahead: int) -> dict[str, bool]:
    """The setting for lookahead block hashes. From 0.33 on, a hash covers tokens after its block
    with an EAGLE drafter, unless this setting disables it; in older releases it never does."""
    return accepted(drafter, disable_lookahead_block_hashes=not ahead)


def hasher(block_hasher: Callable[..., Any], ahead: int) -> dict[str, int]:
    """The argument that sets how many tokens after a block its hash covers. Older releases have no
    such argument."""
    return accepted(block_hasher, num_hash_lookahead_tokens=ahead)


def check_hash_size(scheduler: Any, wanted: int) -> None:
    """Raise AdapterDrift where an engine core has chosen another number of tokens for each hash
    than `wanted`."""
    found = getattr(scheduler, "hash_block_size", wanted)
    if found != wanted:
        why = f"An engine core of this vLLM hashes {found} tokens at a time, not {wanted}"
        raise AdapterDrift(why, "Scheduler.hash_block_size")


def check_hash_lookahead(scheduler: Any, wanted: int) -> None:
    """Raise AdapterDrift where a hash covers another number of tokens after its block than
    `wanted`. In older releases the number is 0."""
    name = "num_hash_lookahead_tokens"
    found = getattr(scheduler, name, 0)
    if found != wanted:
        why = f"A block hash of this vLLM covers {found} tokens after the block, not {wanted}"
        raise AdapterDrift(why, f"Scheduler.{name}")


def shared_prefix_boundary(request: Any) -> int:
    """The number of tokens after which a prompt diverges from an earlier one. Releases before
    vllm#47782 have no such number: 0."""
    return int(getattr(request, "shared_prefix_boundary", 0))


def made(vllm_config: Callable[..., Any], **settings: Any) -> Any:
    """The config of an engine, after vLLM's own checks of it; see `validate`."""
    try:
        return vllm_config(**settings)
    except ValueError as error:
        message = error.errors()[0]["msg"] if hasattr(error, "errors") else str(error)
        raise _refusal(message, CONFIG) from error


def _refusal(message: str, entry: str) -> AdapterDrift:
    first = message.split(". ")[0].rstrip(".")
    return AdapterDrift(f"An engine of this vLLM refuses the config: {first}", entry)


def validate(vllm_config: Any) -> None:
    """Run the check that an engine makes of its config when its block size is known. Raises
    AdapterDrift where a release refuses the config, which is no defect of the release."""
    try:
        vllm_config.validate_block_size()
    except (AssertionError, ValueError) as error:
        raise _refusal(str(error), "VllmConfig.validate_block_size") from error


def scheduler_block_sizes(
    scheduler: Callable[..., Any], largest: int, hashed: int
) -> dict[str, int]:
    """The block sizes that a scheduler gets, in tokens. Before 0.20 it got one, the block size of
    the hashes."""
    if may_take(scheduler, "hash_block_size"):
        return {"block_size": largest, "hash_block_size": hashed}
    return {"block_size": hashed}


def keeps_every_state() -> bool:
    """Whether a Mamba layer of this release can keep the state after each block."""
    from vllm.config import CacheConfig

    return "all" in get_args(get_type_hints(CacheConfig).get("mamba_cache_mode"))


def mixes_embeddings() -> bool:
    """Whether a prompt of this release may have token ids and embeddings."""
    from vllm.v1.request import Request

    return may_take(Request, "prompt_is_token_ids")


class InOrder(set[Any]):
    """Names that are read in order. In which order those of a set are read depends on the seed of
    hashes, and so would the order in which blocks become free."""

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__()))


def in_order(names: Any) -> Any:
    """A set of names that is read in order. Anything else, such as a list, has an order of its own,
    and vLLM may use it in ways that a set does not have."""
    return InOrder(names) if type(names) is set else names


def order_ended(scheduler: Any) -> None:
    """Let a connector that stores what ended requests leave, two of which have ended since the last
    step, do so in order."""
    scheduler.finished_req_ids = in_order(scheduler.finished_req_ids)


def initialized(initialize: Callable[..., Any], caches: Any) -> Any:
    """What an engine core returns of its start-up, for a scheduler with these KV caches. Older
    releases return two numbers of blocks too: on the device, and on the host."""
    several = str(inspect.signature(initialize).return_annotation).startswith("tuple")
    return (caches.num_blocks, 0, caches) if several else caches


def finished(reports: Mapping[str, set[Any]]) -> Any:
    """The report of the worker's connector. Raises AdapterDrift for a kind of report that a release
    does not have."""
    from vllm.v1.outputs import KVConnectorOutput

    for name in reports:
        if name not in inspect.signature(KVConnectorOutput).parameters:
            why = f"A worker of this vLLM has no way to report {name}"
            raise AdapterDrift(why, f"KVConnectorOutput({name})")
    return KVConnectorOutput(**{name: InOrder(names) for name, names in reports.items()})


def reports_failed_reads() -> bool:
    """Whether a worker reports the requests whose read failed. In older releases it reports blocks
    (see `nixl.ended`)."""
    from vllm.v1.outputs import KVConnectorOutput

    return "failed_recving" in inspect.signature(KVConnectorOutput).parameters


def awaits_read(meta: Any) -> bool:
    """Whether D's scheduler waits for a read of NIXL with this metadata. Before 0.30, an empty list
    of groups means that there is nothing to read."""
    return bool(getattr(meta, "awaiting_kvs", len(meta.local_block_ids) > 0))


def failed_loads(invalid: tuple[int, ...]) -> dict[str, Any]:
    """The worker's report of blocks that a store could not load."""
    if not invalid:
        return {}
    from vllm.v1.outputs import KVConnectorOutput

    return {"kv_connector_output": KVConnectorOutput(invalid_block_ids=set(invalid))}


def retention(kv_cache_config: Callable[..., Any], interval: int | None) -> dict[str, Any]:
    """The retention interval in tokens, where the groups' config has it (see also
    `retention_variable`)."""
    return accepted(kv_cache_config, prefix_cache_retention_interval=interval)


@contextlib.contextmanager
def retention_variable(interval: int | None) -> Iterator[None]:
    """The retention interval in tokens, for vLLM before vllm#52216: a scheduler that is built
    inside the block reads it from the environment. The user's own value is restored afterwards."""
    kept = os.environ.pop(RETENTION_VARIABLE, None)
    if interval is not None:
        os.environ[RETENTION_VARIABLE] = str(interval)
    try:
        yield
    except ValueError as error:
        if RETENTION_VARIABLE not in str(error):
            raise
        raise _refusal(str(error), "KVCacheCoordinator.retention_interval") from error
    finally:
        os.environ.pop(RETENTION_VARIABLE, None)
        if kept is not None:
            os.environ[RETENTION_VARIABLE] = kept


def check_retention(coordinator: Any, wanted: int | None) -> None:
    """Raise AdapterDrift where the scheduler did not take the retention interval. Older releases
    have none."""
    if wanted is not None and getattr(coordinator, "retention_interval", None) != wanted:
        why = "A scheduler of this vLLM does not take the retention interval"
        raise AdapterDrift(why, "KVCacheCoordinator.retention_interval")


def check_partial(coordinator: Any, wanted: bool) -> None:
    """Raise AdapterDrift where hits should end inside a block and this release does not support
    it."""
    name = "enable_partial_hash_hits"
    if wanted and not getattr(coordinator, name, False):
        why = "Prefix hits of this vLLM do not end inside a block of the cluster"
        raise AdapterDrift(why, f"KVCacheCoordinator.{name}")


def block_copies(output: Any, partial: bool) -> list[tuple[int, int]]:
    """The block copies that the worker makes before a step: source and target. Older releases have
    no partial hits and no copies."""
    name = "kv_cache_block_copies"
    copies = getattr(output, name) if partial else getattr(output, name, None)
    return [(pair[0], pair[1]) for pair in copies or ()]


def pending_copies(manager: Any, partial: bool) -> Iterable[tuple[Any, Any]]:
    """The copies of a group that wait for the next step: source and target. Older releases have no
    partial hits and no copies."""
    name = "_pending_cow_copies"
    found: Iterable[tuple[Any, Any]] = (
        getattr(manager, name) if partial else getattr(manager, name, ())
    )
    return found


def has_drafter(group: Any) -> bool:
    """Whether vLLM marks a cache group as one with layers of the drafter; older releases mark
    none."""
    return bool(getattr(group, "is_eagle_group", False))


def zeroed(output: Any) -> tuple[int, ...] | None:
    """The blocks that the worker erases before a step; None where a release reports none."""
    name = "new_block_ids_to_zero"
    return tuple(getattr(output, name) or ()) if hasattr(output, name) else None


def further_hashes(pool: Any, partial: bool) -> Mapping[int, Any]:
    """The hashes of further prefixes that end inside a block, by block. Older releases have no
    partial hits and no such hashes."""
    name = "cached_block_hashes_by_block"
    found: Mapping[int, Any] = getattr(pool, name) if partial else getattr(pool, name, {})
    return found


def stale_output(request: Any) -> tuple[int, bool] | None:
    """The number of tokens in flight that a preemption made stale, and whether they are dropped.
    None before vllm#48245, which counts them (see `outputs_to_drop`)."""
    if not hasattr(request, "num_stale_output_tokens"):
        return None
    return request.num_stale_output_tokens, request.drop_stale_output


def outputs_to_drop(request: Any) -> int:
    """The number of steps whose outputs are dropped, because a reset preempted the request. Before
    vllm#42117 it was one at most."""
    if hasattr(request, "async_tokens_to_discard"):
        return int(request.async_tokens_to_discard)
    return int(getattr(request, "discard_latest_async_tokens", 0))


def deferred_frees(scheduler: Any) -> tuple[int, Iterable[tuple[int, Iterable[Any]]]]:
    """The number of steps processed, and the blocks that wait for a step. None before
    vllm#45357."""
    if not hasattr(scheduler, "deferred_frees"):
        return 0, ()
    return scheduler.processed_step_seq, scheduler.deferred_frees


def passed_over(scheduler: Any) -> Collection[Any] | None:
    """The waiting requests that a step has skipped, or that cannot be admitted yet. None where a
    release does not keep them."""
    found: Collection[Any] | None = getattr(scheduler, "deferred_waiting", None)
    return found


def introduce(workers: Sequence[Any], scheduler: Any) -> None:
    """Give the scheduler's side of a connector the metadata by which other engines find its
    workers, as vLLM's engine core does at its start."""
    known = {rank: worker.get_handshake_metadata() for rank, worker in enumerate(workers)}
    if None in known.values():
        return
    if hasattr(scheduler, "set_xfer_handshake_metadata_pp_aware"):
        stages = {(0, rank): of_rank for rank, of_rank in known.items()}
        scheduler.set_xfer_handshake_metadata_pp_aware(stages)
    else:
        scheduler.set_xfer_handshake_metadata(known)
