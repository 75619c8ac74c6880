"""The differences between releases of vLLM: one small function for each changed name.

A call gets only the arguments that the function of this release has. What a release cannot do
raises AdapterDrift: this is no defect of the release, and a check that needs it is UNKNOWN there.
"""

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kvproof.model.errors import AdapterDrift


def accepted(callee: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """The arguments that the callee has as parameters."""
    names = inspect.signature(callee).parameters
    return {name: value for name, value in arguments.items() if name in names}


def first(homes: Sequence[str]) -> Any:
    """The object with the first of these names (`module:name`) that this release has. Raises
    AdapterDrift where it has none."""
    for module, name in (home.split(":") for home in homes):
        with contextlib.suppress(ModuleNotFoundError):
            found = getattr(importlib.import_module(module), name, None)
            if found is not None:
                return found
    raise AdapterDrift(f"This vLLM has none of {', '.join(homes)}", homes[0].split(":")[1])


def resolve_block_hashes(hashes: Sequence[Any], hash_size: int, block_size: int) -> Sequence[Any]:
    """The block hashes for another block size. Older releases have a list type instead of a
    function."""
    if hash_size == block_size:
        return hashes
    from vllm.v1.core import kv_cache_utils as utils

    if hasattr(utils, "resolve_block_hashes"):
        resolved: Sequence[Any] = utils.resolve_block_hashes(hashes, hash_size, block_size)
        return resolved
    listed: Sequence[Any] = utils.BlockHashListWithBlockSize(hashes, hash_size, block_size)
    return listed


def block_hashes(drafter: Callable[..., Any], ahead: int) -> dict[str, bool]:
    """The setting for lookahead block hashes. From 0.33 on, a hash covers tokens after its block
    with an EAGLE drafter, unless this setting disables it; in older releases it never does."""
    return accepted(drafter, disable_lookahead_block_hashes=not ahead)


def hasher(block_hasher: Callable[..., Any], ahead: int) -> dict[str, int]:
    """The number of tokens after a block that its hash covers. Older releases have no such
    argument."""
    return accepted(block_hasher, num_hash_lookahead_tokens=ahead)


def lookahead(event: Any) -> Sequence[Sequence[int]]:
    """The tokens after each block that a KV event names, where hashes cover them."""
    return getattr(event, "lookahead_token_ids", None) or ()


def check_hash_lookahead(scheduler: Any, wanted: int) -> None:
    """Raise AdapterDrift where a hash covers another number of tokens after its block than
    `wanted`. In older releases the number is 0."""
    name = "num_hash_lookahead_tokens"
    found = getattr(scheduler, name, 0)
    if found != wanted:
        why = f"A block hash of this vLLM covers {found} tokens after the block, not {wanted}"
        raise AdapterDrift(why, f"Scheduler.{name}")


def shared_prefix_boundary(request: Any) -> int:
    """Where a prompt diverges from an earlier one, in tokens. Releases before 0.28 do not know it:
    0."""
    return int(getattr(request, "shared_prefix_boundary", 0))


def made(vllm_config: Callable[..., Any], **settings: Any) -> Any:
    """The config of an engine, after its own checks; see `validate`."""
    try:
        return vllm_config(**settings)
    except ValueError as error:
        message = error.errors()[0]["msg"] if hasattr(error, "errors") else str(error)
        why = f"An engine of this vLLM refuses the config: {message.split('. ')[0]}"
        raise AdapterDrift(why, "VllmConfig") from error


def validate(vllm_config: Any) -> None:
    """Run the check that an engine makes of its config when its block size is known. Raises
    AdapterDrift where a release refuses the config, which is no defect of the release."""
    try:
        vllm_config.validate_block_size()
    except (AssertionError, ValueError) as error:
        why = f"An engine of this vLLM refuses the config: {error}"
        raise AdapterDrift(why, "VllmConfig.validate_block_size") from error


def scheduler_block_sizes(
    scheduler: Callable[..., Any], largest: int, hashed: int
) -> dict[str, int]:
    """The block sizes that a scheduler gets, in tokens. Before 0.20 it got one, the block size of
    the hashes."""
    if "hash_block_size" in inspect.signature(scheduler).parameters:
        return {"block_size": largest, "hash_block_size": hashed}
    return {"block_size": hashed}


def finished(reports: dict[str, set[str]]) -> Any:
    """The report of the worker's connector. Raises AdapterDrift for a kind of report that a release
    does not have."""
    from vllm.v1.outputs import KVConnectorOutput

    for name in reports:
        if name not in inspect.signature(KVConnectorOutput).parameters:
            why = f"A worker of this vLLM has no way to report {name}"
            raise AdapterDrift(why, f"KVConnectorOutput({name})")
    return KVConnectorOutput(**reports)


def failed_loads(invalid: tuple[int, ...]) -> dict[str, Any]:
    """The worker's report of blocks that a store could not load."""
    if not invalid:
        return {}
    from vllm.v1.outputs import KVConnectorOutput

    return {"kv_connector_output": KVConnectorOutput(invalid_block_ids=set(invalid))}


def retention(kv_cache_config: Callable[..., Any], interval: int | None) -> dict[str, Any]:
    """The retention interval in tokens; older releases have no such setting. Raises AdapterDrift
    where one is wanted."""
    name = "prefix_cache_retention_interval"
    if name in inspect.signature(kv_cache_config).parameters:
        return {name: interval}
    if interval is not None:
        raise AdapterDrift("KVCacheConfig takes no retention interval", f"KVCacheConfig({name})")
    return {}


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


def stale_output(request: Any) -> tuple[int, bool]:
    """The number of tokens in flight that a preemption made stale, and whether they are dropped.
    Where steps do not overlap, there are none."""
    stale = getattr(request, "num_stale_output_tokens", 0)
    return stale, getattr(request, "drop_stale_output", False)


def deferred_frees(scheduler: Any) -> tuple[int, Iterable[tuple[int, Iterable[Any]]]]:
    """The number of steps processed, and the blocks that wait for a step. None before 0.24."""
    if not hasattr(scheduler, "deferred_frees"):
        return 0, ()
    return scheduler.processed_step_seq, scheduler.deferred_frees
