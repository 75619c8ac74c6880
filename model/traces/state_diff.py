"""A state as flat plain data, and the difference of two states, which a trace has after each event.

A flat state maps a JSON Pointer (RFC 6901), such as `/engines/P/requests/A/computed`, to a plain
value. Engines, requests and transfers are keyed by name, blocks and memory by block id; every other
field is one value, so that the order of a free queue is visible.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from kvproof.model.state import Death, Flight, State

Flat: TypeAlias = dict[str, Any]

BY_NAME = ("engines", "requests", "transfers")
BY_INDEX = ("blocks", "memory")
OPTIONAL = ("drafts", "states", "stops")
"""Fields that are left out where they are empty."""


class Change(NamedTuple):
    """The difference to a later state: new or changed values by pointer, and removed pointers."""

    changed: Flat
    removed: tuple[str, ...] = ()


def flat(state: State) -> Flat:
    """The state as pointers and plain values."""
    return dict(_fields("", state))


def diff(before: Flat, after: Flat) -> Change:
    """The change from `before` to `after`."""
    nothing = object()
    changed = {p: v for p, v in after.items() if before.get(p, nothing) != v}
    return Change(changed, tuple(p for p in before if p not in after))


def patched(before: Flat, change: Change) -> Flat:
    """The state `before` with the change applied: the inverse of `diff`."""
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
    """A value as JSON returns it: tuples become lists. A request's part of a step in flight has no
    fields for drafts where there are none. The statement that killed an engine
    is no part of its state: another release has it in other words."""
    if isinstance(value, Flight) and not value.ahead:
        value = value[: Flight._fields.index("ahead")]
    if isinstance(value, Death):
        value = value[: Death._fields.index("statement")]
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
            yield from ((f"{here}/{escaped(request)}", tokens) for request, tokens in value)
        elif name not in OPTIONAL or value:
            yield here, plain(value)


def escaped(name: Any) -> str:
    """A name as a part of a pointer."""
    return str(name).replace("~", "~0").replace("/", "~1")


def _items(path: str, items: Iterable[tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
    for name, item in items:
        here = f"{path}/{escaped(name)}"
        if item is None:
            yield here, None
        else:
            yield from _fields(here, item)
