"""What another part of vLLM, or a user, can see of an engine: the answers of its calls, and its
state, as plain data.

Base and head of a pull request are compared by these values after each event. So they have no name
of an attribute, no address, hash, folder or time: a rename, a private cache or another container
changes nothing here. An object is shown by the places and the values of its fields that have one,
so a new field behind the others that stays empty changes nothing either.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from msgspec import Struct

from kvproof.live.observer import view
from kvproof.live.observer.kept import reached

LEFT_OUT = ("vllm.config", "vllm.sampling_params")
"""Modules whose objects are not shown: an engine's user has chosen what they say."""

TIMES = ("time", "duration", "latency", "delay", "second", "deadline", "expir")
"""Words in the names of fields that hold a time, which differs from run to run."""

NUMBER_MAX = 1 << 31
"""A larger number is a hash or an address."""

DIGITS = re.compile("[0-9a-f]{8,}|(?<=kvproof-)[0-9]+")
"""The digits of a hash or a uuid in a name, and of the process in those that kvproof gives."""

ELEMENTS_MAX = 1_000
"""An array with more elements is content, which other checks compare."""

UNNAMED = "(unnamed)"
"""Stands in place of a hash, an address, a time or an object that has no value."""


def plain(thing: Any, inside: tuple[int, ...] = ()) -> Any:
    """A value as plain data: numbers, texts, and lists of these. `inside` are the objects that it
    lies in, by identity."""
    match thing:
        case None | bool():
            return thing
        case Enum():
            return thing.name
        case int():
            return int(thing) if abs(thing) < NUMBER_MAX else UNNAMED
        case float():  # a share; any other float is a time
            return round(thing, 6) if 0 <= thing <= 1 else UNNAMED
        case str():
            return DIGITS.sub(UNNAMED, thing.rsplit("/", 1)[-1])
        case bytes():
            return UNNAMED
    if id(thing) in inside:
        return UNNAMED
    return _composed(thing, (*inside, id(thing)))


def _composed(thing: Any, inside: tuple[int, ...]) -> Any:
    """An object with parts. Blocks and requests are shown by their names."""
    if isinstance(thing, Mapping):
        pairs = ([plain(k, inside), plain(v, inside)] for k, v in thing.items() if not _timed(k))
        return sorted(pairs, key=repr)
    if isinstance(thing, Set):
        return sorted((plain(each, inside) for each in thing), key=repr)
    for name, other in (("block_id", "ref_cnt"), ("request_id", "status")):
        if hasattr(thing, name) and hasattr(thing, other):
            return plain(getattr(thing, name), inside)
    if hasattr(thing, "tolist"):
        few = thing.size if isinstance(thing.size, int) else thing.numel()
        return plain(thing.tolist(), inside) if few <= ELEMENTS_MAX else UNNAMED
    if hasattr(thing, "__len__") and hasattr(thing, "__iter__"):
        return [plain(each, inside) for each in thing]
    return _fields(thing, inside)


def _fields(thing: Any, inside: tuple[int, ...]) -> Any:
    """The fields of an object that have a value, each with its place. The tag of a message is part
    of its value."""
    module = type(thing).__module__
    if isinstance(thing, Struct):
        names: Sequence[str] = thing.__struct_fields__
    elif is_dataclass(thing):
        names = [each.name for each in fields(thing)]
    elif module.startswith("vllm."):
        names = [name for name in getattr(thing, "__dict__", ()) if not name.startswith("_")]
    else:
        return str(thing) if module == "torch" and str(thing).startswith("torch.") else UNNAMED
    if module.startswith(LEFT_OUT):
        return UNNAMED
    shown: list[Any] = []
    if isinstance(thing, Struct) and thing.__struct_config__.tag:
        shown.append(thing.__struct_config__.tag)
    for place, name in enumerate(names):
        value = None if _timed(name) else plain(getattr(thing, name, None), inside)
        if value and value != UNNAMED:
            shown.append([place, value])
    return shown


def _timed(name: Any) -> bool:
    return isinstance(name, str) and any(word in name for word in TIMES)


Named = Callable[[Any], object]
"""Says which prefix a key of a pool's map stands for."""


def pools(scheduler: Any) -> list[Any]:
    """The block pools of an engine: the scheduler's first, then those of its connector."""
    first = scheduler.kv_cache_manager.block_pool
    others = (each for _, each in reached(scheduler) if isinstance(each, type(first)))
    return [first, *(each for each in others if each is not first)]


def held_after_end(scheduler: Any) -> int:
    """The blocks that are held, and of no request that goes on: a connector holds them for a copy
    or a peer, or somebody forgot them."""
    pool, tables = scheduler.kv_cache_manager.block_pool, scheduler.kv_cache_manager.get_block_ids
    going = (name for name, each in scheduler.requests.items() if not each.is_finished())
    theirs = {block for name in going for group in tables(name) for block in group}
    held = len(pool.blocks) - 1 - pool.get_num_free_blocks()
    return int(held - len(theirs - {pool.null_block.block_id}))


def state(scheduler: Any, of_pools: Sequence[Any], named: Named) -> Iterator[object]:
    """The state of an engine: whether it says that it has work, its queues, requests and block
    tables, its pools, and the encoder's outputs that it keeps."""
    yield scheduler.has_requests(), plain(getattr(scheduler, "pause_state", None))
    yield queues(scheduler)
    tables = scheduler.kv_cache_manager.get_block_ids
    for name, each in scheduler.requests.items():
        so_far = each.num_computed_tokens, each.num_tokens, each.num_preemptions
        yield plain(name), each.status.name, so_far, plain(tables(name))
    for pool in of_pools:
        yield from _pool(pool, named)
    encoder = getattr(scheduler, "encoder_cache_manager", None)
    yield plain(encoder), [*map(plain, getattr(encoder, "freed", ()))]


def queues(scheduler: Any) -> tuple[list[str], list[list[str]]]:
    """The names of the running requests, and of those in each queue of waiting ones, in order."""
    running = [plain(each.request_id) for each in scheduler.running]
    return running, [[plain(r.request_id) for r in queue] for queue in view.queues(scheduler)]


def _pool(pool: Any, named: Named) -> Iterator[object]:
    """The free queue in order, the reference counts, and the prefixes in the map."""
    yield view.free(pool), [0 if each.is_null else each.ref_cnt for each in pool.blocks]
    entries = pool.cached_block_hash_to_block._cache
    yield sorted(((named(key), view.blocks_of(each)) for key, each in entries.items()), key=repr)
