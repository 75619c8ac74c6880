"""A state as flat plain data, and the difference of two: what a trace holds after each event.

A flat state maps a JSON Pointer (RFC 6901), such as `/engines/P/requests/A/computed`, to a plain
value. Engines, requests and transfers are keyed by name, blocks and memory by block id; everything
else is a value as it stands, so that the order of a free queue is seen.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from kvproof.model.state import Flight, State

Flat: TypeAlias = dict[str, Any]

BY_NAME = ("engines", "requests", "transfers")
BY_INDEX = ("blocks", "memory")
OPTIONAL = ("drafts", "states")
"""Fields that are left out where they say nothing, as in traces from before there were such."""


class Change(NamedTuple):
    """What differs in a later state: new or other values by pointer, and pointers that are gone."""

    changed: Flat
    removed: tuple[str, ...] = ()


def flat(state: State) -> Flat:
    """The state as pointers and plain values."""
    return dict(_fields("", state))


def diff(before: Flat, after: Flat) -> Change:
    """What turns `before` into `after`."""
    nothing = object()
    changed = {p: v for p, v in after.items() if before.get(p, nothing) != v}
    return Change(changed, tuple(p for p in before if p not in after))


def patched(before: Flat, change: Change) -> Flat:
    """`before` with a change made: the inverse of `diff`."""
    gone = set(change.removed)
    return {**{p: v for p, v in before.items() if p not in gone}, **change.changed}


def parts(pointer: str) -> tuple[str, ...]:
    """The names in a pointer, unescaped."""
    return tuple(p.replace("~1", "/").replace("~0", "~") for p in pointer.split("/")[1:])


def nested(state: Flat) -> dict[str, Any]:
    """A flat state as nested objects, for renderers."""
    root: dict[str, Any] = {"engines": {}, "transfers": {}}
    for pointer, value in state.items():
        *path, last = parts(pointer)
        place = root
        for name in path:
            place = place.setdefault(name, {})
        place[last] = value
    return root


def plain(value: Any) -> Any:
    """A value as JSON would give it back: tuples become lists. A share of a step in flight is told
    without what it has of drafts where there are none, as in traces from before there were such."""
    if isinstance(value, Flight) and not value.ahead:
        value = value[: Flight._fields.index("ahead")]
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, StrEnum):
        return value.value
    return value


def _fields(path: str, record: Any) -> Iterator[tuple[str, Any]]:
    for name, value in record._asdict().items():
        here = f"{path}/{name}"
        if name in BY_NAME:
            yield from _items(here, ((item[0], item) for item in value))
        elif name in BY_INDEX:
            yield from _items(here, enumerate(value))
        elif name == "ghost":
            yield from _fields(here, value)
        elif name == "shared":
            yield from ((f"{here}/{_escaped(request)}", tokens) for request, tokens in value)
        elif name not in OPTIONAL or value:
            yield here, plain(value)


def _escaped(name: Any) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")


def _items(path: str, items: Iterable[tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
    for name, item in items:
        here = f"{path}/{_escaped(name)}"
        if item is None:
            yield here, None
        else:
            yield from _fields(here, item)
