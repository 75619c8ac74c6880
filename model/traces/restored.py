"""Makes a flat state a `State` again: the inverse of `state_diff.flat`, for code that needs a
recorded state as an object."""

import functools
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from msgspec import convert

from kvproof.model.config import Cluster
from kvproof.model.config.sides import transfer_names
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import printable
from kvproof.model.ghost_state import Ghost
from kvproof.model.state import State
from kvproof.model.traces.state_diff import BY_INDEX, BY_NAME, Flat, flat, nested

Record = TypeVar("Record")


def restored(state: Flat) -> State:
    """The `State` of a flat state. Its requests are in the order of their arrival."""
    return _record(State, nested(state))


WHOLE = "a trace file as kvproof wrote it"
"""What to use instead of a damaged trace."""

WHY_MAX = 200
"""The number of characters of what is wrong with a state."""


def checked(cluster: Cluster, state: Flat) -> None:
    """Raise UsageError where a flat state is not that of any state of this cluster: it must be
    equal to the flat state of the state that is made of it."""
    try:
        found = restored(state)
        again = flat(found)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        why = printable(str(error))[:WHY_MAX]
        raise UsageError(f"The changes give no state ({why}). Use {WHOLE}.") from error
    nothing = object()
    odd = [p for p in {**again, **state} if again.get(p, nothing) != state.get(p, nothing)]
    if odd:
        raise UsageError(f"No state has {printable(min(odd))[:WHY_MAX]} like this. Use {WHOLE}.")
    jobs = {job.name for job in cluster.jobs}
    whole = [(each.name, each.num_blocks) for each in cluster.engines]
    if [(each.name, len(each.blocks)) for each in found.engines] != whole or not (
        all(jobs.issuperset(each.id for each in engine.requests) for engine in found.engines)
        and {each.request for each in found.transfers} <= set(transfer_names(cluster))
    ):
        raise UsageError(f"The changes give no state of this cluster. Use {WHOLE}.")


def _record(kind: Callable[..., Record], found: Mapping[str, Any]) -> Record:
    types = _types(kind)
    return kind(**{name: _value(name, types[name], value) for name, value in found.items()})


def _value(name: str, kind: Any, found: Any) -> Any:
    if name == "ghost":
        return _record(Ghost, found)
    if name == "shared":
        return tuple(found.items())
    if name in BY_NAME:
        return tuple(_record(get_args(kind)[0], item) for item in found.values())
    if name in BY_INDEX:
        record = next(each for each in _kinds(get_args(kind)[0]) if each is not NoneType)
        ordered = (found[index] for index in sorted(found, key=int))
        return tuple(None if item is None else _record(record, item) for item in ordered)
    return convert(found, kind)


def _kinds(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) or (kind,)


@functools.cache
def _types(record: Callable[..., Any]) -> Mapping[str, Any]:
    return get_type_hints(record)
