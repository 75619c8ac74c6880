"""The search graph: packed states, the events between them, and the states still to expand."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, overload

from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.finding import Finding
from kvproof.model.state import State, initial
from kvproof.strategies.explorer.collapse import Collapse, Parts

T = TypeVar("T", covariant=True)


class LazySequence(Sequence[T]):
    """A sequence whose items are computed on access."""

    def __init__(self, size: Callable[[], int], item: Callable[[int], T]) -> None:
        self._size, self._item = size, item

    def __len__(self) -> int:
        return self._size()

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._item(i) for i in range(len(self))[index]]
        return self._item(range(len(self))[index])

    def __iter__(self) -> Iterator[T]:
        return map(self._item, range(len(self)))


class SearchGraph:
    """The states that a search has reached so far: the first `expanded` states are expanded, the
    others wait in the order of their numbers. States are numbered in the order of discovery; 0 is
    the initial state. Events have no block ids (see `filled`). `finding` ended the search; the last
    of its `events` leads to no state of the graph. `cut` is whether the search ended before all
    states were expanded. `margins` has, by invariant, its smallest margin and the state with it;
    `goals` has, by coverage goal, the state from which it was first reached."""

    def __init__(self, cluster: Cluster) -> None:
        self.collapse = Collapse(cluster)
        self.packed: list[bytes] = []
        self.numbers: dict[bytes, int] = {}
        self.expanded = 0
        self.generated = 0
        self.fired: Counter[str] = Counter()
        self.new: Counter[str] = Counter()
        self.finding: Finding | None = None
        self.events: tuple[Event, ...] = ()
        self.cut = False
        self.margins: dict[str, tuple[int, int]] = {}
        self.goals: dict[str, int] = {}
        self.event_list: list[Event] = []
        self._event_numbers: dict[Event, int] = {}
        self.depths = array("I")
        self._parent, self._by = array("I"), array("I")
        self._from, self._to, self._edge = array("I"), array("I"), array("I")
        self._loop, self._loop_event = array("I"), array("I")
        self.add(self.collapse.pack(self.collapse.parts(initial(cluster))), 0, 0, 0)

    def add(self, packed: bytes, parent: int, by: int, depth: int) -> int:
        """Number a new packed state."""
        number = len(self.packed)
        self.numbers[packed] = number
        self.packed.append(packed)
        self._parent.append(parent)
        self._by.append(by)
        self.depths.append(depth)
        return number

    def event_number(self, event: Event) -> int:
        """The number of an event; a new event is stored."""
        number = self._event_numbers.get(event)
        if number is None:
            number = self._event_numbers[event] = len(self.event_list)
            self.event_list.append(event)
        return number

    def join(self, origin: int, target: int, event: int) -> None:
        """Record an edge, or a self-loop for an event that changes nothing."""
        if origin == target:
            self._loop.append(origin)
            self._loop_event.append(event)
        else:
            self._from.append(origin)
            self._to.append(target)
            self._edge.append(event)

    def parts(self, number: int) -> Parts:
        """The components of a state."""
        return self.collapse.unpack(self.packed[number])

    @property
    def states(self) -> Sequence[State]:
        """The states in the order of their numbers."""
        return LazySequence(self.packed.__len__, lambda i: self.collapse.state(self.parts(i)))

    @property
    def parents(self) -> Sequence[tuple[int, Event] | None]:
        """The predecessor of each state on a shortest trace, and the event; None for state 0."""

        def parent(i: int) -> tuple[int, Event] | None:
            return (self._parent[i], self.event_list[self._by[i]]) if i else None

        return LazySequence(self.packed.__len__, parent)

    @property
    def edges(self) -> Sequence[tuple[int, int, Event]]:
        """From, to, and the event."""

        def edge(i: int) -> tuple[int, int, Event]:
            return self._from[i], self._to[i], self.event_list[self._edge[i]]

        return LazySequence(self._from.__len__, edge)

    @property
    def self_loops(self) -> Sequence[tuple[int, Event]]:
        """Events that change nothing, with their state."""
        return LazySequence(
            self._loop.__len__, lambda i: (self._loop[i], self.event_list[self._loop_event[i]])
        )

    def trace(self, number: int) -> tuple[Event, ...]:
        """The events of a shortest trace to a state."""
        events = []
        while number:
            events.append(self.event_list[self._by[number]])
            number = self._parent[number]
        return tuple(reversed(events))
