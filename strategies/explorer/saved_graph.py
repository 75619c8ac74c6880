"""A search graph as declared types, and the graph from them.

Only what cannot be computed is saved: the components, the packed states, and the edges in the order
in which they were found. The rest follows from the edges: the predecessor and the depth of a state,
and all counts. A finding is not saved: its step is taken again.
"""

import sys
from array import array
from collections import Counter
from typing import Annotated, Any

import msgspec

from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.state import Engine, State, Transfer
from kvproof.strategies.explorer.search_graph import SearchGraph

Number = Annotated[int, msgspec.Meta(ge=0)]


class Broken(Exception):
    """The data is not the graph of a search. The message says why, as a part of a sentence."""


class Components(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parts of states by kind, one list for each field of `State`. `kinds` has the index of the
    list of each part, in the order of their numbers."""

    kinds: memoryview
    engines: list[Engine]
    transfers: list[Transfer | None]
    ended: list[tuple[tuple[str, str], ...]]
    failures: list[Number]

    @property
    def lists(self) -> tuple[list[Any], ...]:
        """The lists in the order of the fields of `State`."""
        return tuple(getattr(self, name) for name in State._fields)


class SavedGraph(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A search graph. `states` has the numbers of the parts of each state; `edges` has, as columns,
    from, to, event number and renaming; `loops` has state and event number. The first byte of each
    number is the highest. `violated`: a step from the last expanded state breaks an invariant."""

    components: Components
    states: memoryview
    expanded: Number
    edges: tuple[memoryview, memoryview, memoryview, memoryview]
    loops: tuple[memoryview, memoryview]
    events: list[Event]
    margins: dict[str, tuple[int, Number]]
    goals: dict[str, Number]
    violated: bool


def saved(reached: SearchGraph) -> SavedGraph:
    """The whole search graph as declared types."""
    (origins, targets, taken, turns), (looped, by) = (map(_bytes, each) for each in reached.arrays)
    return SavedGraph(
        components=_components(reached.collapse.components),
        states=memoryview(b"".join(reached.packed)),
        expanded=reached.expanded,
        edges=(origins, targets, taken, turns),
        loops=(looped, by),
        events=reached.event_list,
        margins=reached.margins,
        goals=reached.goals,
        violated=reached.finding is not None,
    )


def _components(components: list[Any]) -> Components:
    lists: dict[str, list[Any]] = {name: [] for name in State._fields}
    kinds = bytearray()
    for component in components:
        if isinstance(component, Engine):
            kind = 0
        elif isinstance(component, int):
            kind = 3
        else:
            kind = 1 if component is None or isinstance(component, Transfer) else 2
        kinds.append(kind)
        lists[State._fields[kind]].append(component)
    return Components(memoryview(bytes(kinds)), **lists)


def _bytes(numbers: "array[int]") -> memoryview:
    numbers = numbers[:]
    if sys.byteorder == "little":
        numbers.byteswap()
    return memoryview(numbers.tobytes())


def _array(typecode: str, data: memoryview) -> "array[int]":
    numbers = array(typecode)
    numbers.frombytes(data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def restored(cluster: Cluster, data: SavedGraph) -> SearchGraph:
    """The search graph from saved data. Raises Broken, or any other exception, if the data is not
    the graph of a search in this cluster."""
    reached = SearchGraph(cluster)
    lists = [iter(each) for each in data.components.lists]
    for number, kind in enumerate(data.components.kinds):
        if reached.collapse.number(next(lists[kind])) != number:
            raise Broken("two components are equal, or the initial state is not the cluster's own")
    length = len(reached.packed[0])
    starts = range(0, len(data.states), length)
    packed = [bytes(data.states[start : start + length]) for start in starts]
    reached.expanded = data.expanded
    for event in data.events:
        reached.event_number(event)
    codes = (column.typecode for column in reached.arrays[0])
    edges = [_array(code, column) for code, column in zip(codes, data.edges, strict=True)]
    loops = [_array("I", column) for column in data.loops]
    for origin, target, event, turn in zip(*edges, strict=True):
        if target == len(reached.packed):
            reached.add(packed[target], origin, event, reached.depths[origin] + 1, turn)
            reached.new[type(data.events[event]).__name__] += 1
        reached.join(origin, target, event, turn)
    for origin, event in zip(*loops, strict=True):
        reached.join(origin, origin, event)
    if len(reached.packed) != len(packed):
        raise Broken("a state is reached by no edge")
    for place, count in Counter([*edges[2], *loops[1]]).items():
        reached.fired[type(data.events[place]).__name__] += count
        reached.generated += count
    reached.margins, reached.goals = dict(data.margins), dict(data.goals)
    return reached
