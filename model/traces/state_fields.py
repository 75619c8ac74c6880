"""The fields of a flat state: which pointers exist, and the type of each value.

Both are derived from the type `State`, in the same way as `state_diff.flat` makes the pointers.
`Fields` checks the changes of a trace one after the other: changes that it accepts can be combined
to whole states.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple, get_args, get_type_hints

from kvproof.model.config import Cluster
from kvproof.model.config.sides import transfer_names
from kvproof.model.errors import UsageError
from kvproof.model.files.decoding import converted
from kvproof.model.ghost_state import Ghost
from kvproof.model.state import State, initial
from kvproof.model.traces.state_diff import (
    BY_INDEX,
    BY_NAME,
    OPTIONAL,
    Change,
    escaped,
    flat,
    parts,
)

WHOLE = "a trace file as kvproof wrote it"
"""What to use instead of a damaged trace."""

_INDEX = re.compile("0|[1-9][0-9]{0,8}")


class Item(NamedTuple):
    """A part of a state that may come and go: a request, a transfer, the content of a block.
    `fields` are the fields that it must have. A `nullable` item is null while it is missing."""

    at: str
    fields: tuple[str, ...]
    nullable: bool


class PointedValue(NamedTuple):
    """The value that a pointer points to: a value of type `kind`, which is a field of `item`. A
    value outside any item always exists, unless it is `optional`."""

    kind: Any
    item: Item | None = None
    optional: bool = False


class Fields:
    """The fields of the current state of a trace; at first of the initial state."""

    def __init__(self, cluster: Cluster) -> None:
        jobs = tuple(job.name for job in cluster.jobs)
        self.blocks = {engine.name: engine.num_blocks for engine in cluster.engines}
        self.names = {
            "engines": tuple(self.blocks),
            "requests": jobs,
            "transfers": tuple(transfer_names(cluster)),
        }
        self.present = set(flat(initial(cluster)))

    def follow(self, change: Change) -> None:
        """Apply the next change. Raises UsageError where no state has a pointer, where a value does
        not have the type of its field, or where the state becomes incomplete."""
        places = {at: self._place(at) for at in (*change.removed, *change.changed)}
        for at in change.removed:
            place = places[at]
            if at not in self.present or not (place.item or place.optional):
                raise UsageError(f"The field {at} cannot be removed here. Use {WHOLE}.")
        for at, value in change.changed.items():
            converted(value, places[at].kind, f"The value of {at}", WHOLE)
        self.present = (self.present - {*change.removed}) | change.changed.keys()
        for item in {place.item for place in places.values() if place.item}:
            self._check_whole(item)

    def _check_whole(self, item: Item) -> None:
        required = {f"{item.at}/{name}" for name in item.fields}
        others = {f"{item.at}/{name}" for name in OPTIONAL}
        missing, null = required - self.present, item.at in self.present
        gone = missing == required and null == item.nullable and not others & self.present
        if not gone and (missing or null):
            lacks = min(missing, default=item.at)
            raise UsageError(f"{item.at} has some of its fields and not {lacks}. Use {WHOLE}.")

    def _place(self, pointer: str) -> PointedValue:
        path = parts(pointer)
        same = pointer == "".join(f"/{escaped(name)}" for name in path)
        place = self._found(State, "", path) if same else None
        if place is None:
            raise UsageError(f"No state of this cluster has a field {pointer!r}. Use {WHOLE}.")
        return place

    def _found(
        self, record: type, here: str, path: Sequence[str], item: Item | None = None
    ) -> PointedValue | None:
        """The place of a path within a record that is at `here`; None if there is none."""
        if not path or path[0] not in _types(record):
            return None
        name, *rest = path
        kind, at = _types(record)[name], f"{here}/{name}"
        if name in (*BY_NAME, *BY_INDEX):
            if not rest or not self._exists(name, rest[0], here):
                return None
            return self._within(get_args(kind)[0], name, f"{at}/{escaped(rest[0])}", rest[1:])
        if name == "ghost":
            return self._found(Ghost, at, rest)
        if name == "shared":
            known = len(rest) == 1 and rest[0] in self.names["requests"]
            return PointedValue(int, optional=True) if known else None
        return None if rest else PointedValue(kind, item)

    def _within(self, kind: Any, name: str, at: str, rest: Sequence[str]) -> PointedValue | None:
        """The place of a path within an item of a table of this name."""
        nullable = NoneType in get_args(kind)
        record = get_args(kind)[0] if nullable else kind
        required = tuple(field for field in _types(record) if field not in OPTIONAL)
        comes_and_goes = nullable or name in ("requests", "transfers")
        item = Item(at, required, nullable) if comes_and_goes else None
        if not rest:
            return PointedValue(NoneType, item) if nullable else None
        return self._found(record, at, rest, item)

    def _exists(self, table: str, name: str, here: str) -> bool:
        """Whether the cluster has the engine, request, transfer or block of this name."""
        if table in BY_NAME:
            return name in self.names[table]
        blocks = self.blocks[parts(here)[1]]
        return _INDEX.fullmatch(name) is not None and int(name) < blocks


@functools.cache
def _types(record: type) -> Mapping[str, Any]:
    """The type of each field of a record."""
    return get_type_hints(record)
