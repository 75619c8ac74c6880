"""A search graph as declared types, and the graph from them.

Only what cannot be computed is saved: the components, the packed states, and the edges in the order
in which they were found. The rest follows from the edges: the predecessor and the depth of a state,
and all counts. A finding is not saved: `resumed` takes its step again.
"""

import sys
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import msgspec

from kvproof.model.config import Cluster, config_json
from kvproof.model.events import Event
from kvproof.model.state import Engine, State, Transfer
from kvproof.strategies.explorer.collapse import BITS
from kvproof.strategies.explorer.search_graph import SearchGraph

Number = Annotated[int, msgspec.Meta(ge=0)]

NUMBER_BYTES = BITS // 8
"""Bytes of a number in an array of a file. The first byte is the highest."""

LARGEST_FACTOR = 100
"""No number or length in a state is larger than this factor times the sum of the numbers and
lengths in its cluster."""


class Broken(Exception):
    """The data is not the graph of a search. The message says why, as a part of a sentence."""


class Components(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The components of states by kind, one list for each field of `State`. `kinds` has the index
    of the list of each component, in the order of their numbers."""

    kinds: memoryview
    engines: list[Engine]
    transfers: list[tuple[Transfer, ...]]
    ended: list[tuple[tuple[str, str], ...]]
    failures: list[Number]

    @property
    def lists(self) -> tuple[list[Any], ...]:
        """The lists in the order of the fields of `State`."""
        return tuple(getattr(self, name) for name in State._fields)


class SavedGraph(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A search graph. `states` has the numbers of the components of each state; `edges` has, as
    columns, from, to, event number and renaming; `loops` has state and event number. `violated`: a
    step from the last expanded state breaks an invariant."""

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
    length = reached.collapse.width * NUMBER_BYTES
    states = b"".join(packed.to_bytes(length, "big") for packed in reached.packed)
    return SavedGraph(
        components=_components(reached.collapse.components),
        states=memoryview(states),
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
        # An empty tuple of transfers equals an empty tuple of ended jobs: they are one component.
        if isinstance(component, Engine):
            kind = 0
        elif isinstance(component, int):
            kind = 3
        else:
            kind = 1 if not component or isinstance(component[0], Transfer) else 2
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
    if len(data) % numbers.itemsize:
        raise Broken("an array ends within a number")
    numbers.frombytes(data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


class _Sizes(NamedTuple):
    """The numbers of states, of expanded states, of events and of renamings."""

    states: int
    expanded: int
    events: int
    renamings: int


def restored(cluster: Cluster, data: SavedGraph, renamings: int = 1) -> SearchGraph:
    """The search graph from saved data; `renamings` is their number in a search with symmetry.
    Raises Broken if the data is not the graph of a search in this cluster."""
    reached = SearchGraph(cluster)
    _number_components(cluster, reached, data.components)
    packed = _packed(cluster, reached, data)
    sizes = _Sizes(len(packed), data.expanded, len(data.events), renamings)
    if not sizes.expanded <= sizes.states:
        raise Broken("more states are expanded than reached")
    reached.expanded = data.expanded
    for event in data.events:
        reached.event_number(event)
    if len(reached.event_list) != sizes.events:
        raise Broken("an event has two numbers")
    _join_edges(reached, packed, data, sizes)
    _join_loops(reached, data, sizes)
    if len(reached.packed) != sizes.states:
        raise Broken("a state is reached by no edge")
    if any(number >= sizes.states for _, number in data.margins.values()):
        raise Broken("a margin is that of no state")
    if any(number >= sizes.expanded for number in data.goals.values()):
        raise Broken("a goal was met in no state")
    reached.margins, reached.goals = dict(data.margins), dict(data.goals)
    return reached


def _number_components(cluster: Cluster, reached: SearchGraph, components: Components) -> None:
    """Give the components their numbers. The first ones are those of the initial state."""
    lists = [iter(components_of_kind) for components_of_kind in components.lists]
    collapse = reached.collapse
    for number, kind in enumerate(components.kinds):
        component = next(lists[kind], None) if kind < len(lists) else None
        if component is None:
            raise Broken("a component is missing")
        if collapse.number(component) != number:
            raise Broken("two components are equal, or the initial state is not the cluster's own")
    if any(next(rest, None) is not None for rest in lists):
        raise Broken("a component has no number")
    largest = LARGEST_FACTOR * _extent(config_json.to_json(cluster))
    for value in collapse.values():
        if _too_large(value, largest) or any(_too_large(item, largest) for item in value):
            raise Broken("a state has a number or a list that is too large for the cluster")
    for engine in components.engines:
        if engine.reports or engine.copies:
            raise Broken("an engine is within a step")


def _extent(data: Any) -> int:
    """The sum of all numbers and all lengths of texts and lists in plain data."""
    if isinstance(data, dict):
        return _extent(list(data.values()))
    if isinstance(data, list | tuple):
        return len(data) + sum(map(_extent, data))
    return len(data) if isinstance(data, str) else abs(data or 0)


def _too_large(value: Any, largest: int) -> bool:
    if isinstance(value, int):
        return not -1 <= value <= largest
    return isinstance(value, str | tuple) and len(value) > largest


def _packed(cluster: Cluster, reached: SearchGraph, data: SavedGraph) -> list[int]:
    """The packed states, which are different and have components of the right kinds."""
    collapse = reached.collapse
    length = collapse.width * NUMBER_BYTES
    numbers = _array("I", data.states)
    if len(data.states) % length:
        raise Broken("an array ends within a state")
    for place in range(collapse.width):
        for number in set(numbers[place :: collapse.width]):
            if number >= len(collapse.components):
                raise Broken("a state has a component that does not exist")
            if not _fits(cluster, collapse.components[number], place):
                raise Broken("a state has a component of another kind")
    starts = range(0, len(data.states), length)
    packed = [int.from_bytes(data.states[start : start + length], "big") for start in starts]
    if len(set(packed)) != len(packed):
        raise Broken("a state has two numbers")
    if packed[:1] != reached.packed:
        raise Broken("the initial state is not the cluster's own")
    return packed


def _fits(cluster: Cluster, component: Any, place: int) -> bool:
    """Whether a component can have this place in a state: the engines are in the order of the
    cluster."""
    engines = len(cluster.engines)
    if place < engines:
        return isinstance(component, Engine) and component.name == cluster.engines[place].name
    field = place - engines + 1
    if isinstance(component, Engine | int):
        return field == 3 and isinstance(component, int)
    return field < 3 and all(isinstance(item, Transfer) == (field == 1) for item in component)


def _join_edges(reached: SearchGraph, packed: list[int], data: SavedGraph, sizes: _Sizes) -> None:
    """Add the edges, and each state with the first edge that leads to it."""
    kinds = [type(event).__name__ for event in data.events]
    codes = (column.typecode for column in reached.arrays[0])
    columns = [_array(code, column) for code, column in zip(codes, data.edges, strict=True)]
    for origin, target, event, turn in _rows(columns, sizes):
        known = len(reached.packed)
        if origin >= known or target > known or turn >= sizes.renamings:
            raise Broken("an edge begins or ends in no state")
        if target == known:
            if target >= sizes.states:
                raise Broken("an edge ends in no state")
            depth = reached.depths[origin] + 1
            reached.add(packed[target], origin, event, depth, turn)
            reached.new[kinds[event]] += 1
        elif origin == target and not turn:
            raise Broken("a self-loop is among the edges")
        reached.join(origin, target, event, turn)
    _count(reached, columns[2])


def _join_loops(reached: SearchGraph, data: SavedGraph, sizes: _Sizes) -> None:
    columns = [_array("I", column) for column in data.loops]
    for origin, event in _rows([columns[0], columns[1]], sizes):
        reached.join(origin, origin, event)
    _count(reached, columns[1])


def _rows(columns: "list[array[int]]", sizes: _Sizes) -> Iterator[tuple[int, ...]]:
    """The rows of edges or self-loops, in the order in which their states were expanded."""
    events = columns[2 if len(columns) == 4 else 1]
    if len({len(column) for column in columns}) != 1:
        raise Broken("the columns of the edges differ in length")
    if any(event >= sizes.events for event in set(events)):
        raise Broken("an edge has an event that does not exist")
    last = 0
    for row in zip(*columns, strict=True):
        if not last <= row[0] < sizes.expanded:
            raise Broken("an edge begins in a state that was not expanded, or out of order")
        last = row[0]
        yield row


def _count(reached: SearchGraph, events: "array[int]") -> None:
    """Count the steps by the kinds of their events."""
    for number, count in Counter(events).items():
        reached.fired[type(reached.event_list[number]).__name__] += count
    reached.generated += len(events)
