"""The search graph: the states as numbers of their parts, the events between them, and the states
still to expand."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.finding import Finding
from kvproof.model.state import State, initial
from kvproof.strategies.explorer.collapse import Collapse, Parts


class SearchGraph:
    """The states that a search has reached so far: the first `expanded` states are expanded, the
    others wait in the order of their numbers. States are numbered in the order of discovery; 0 is
    the initial state. `parts` has the parts of each state, `depths` its number of events from the
    initial state, and `parents` its predecessor on a shortest trace with the event, None for state
    0. `edges` are triples of a state, the next state and the event; `self_loops` are the events
    that change nothing, with their state. Events have no block ids.

    `finding` ended the search; the last of its `events` leads to no state of the graph. `cut` is
    whether the search ended before all states were expanded.

    A search of a machine that cannot be set to a state has another name for each state in place of
    its parts, and begins with the name `start`."""

    def __init__(self, cluster: Cluster, start: Parts | None = None) -> None:
        self.collapse = Collapse(cluster)
        self.parts: list[Parts] = []
        self.numbers: dict[Parts, int] = {}
        self.depths: list[int] = []
        self.parents: list[tuple[int, Event] | None] = []
        self.edges: list[tuple[int, int, Event]] = []
        self.self_loops: list[tuple[int, Event]] = []
        self.expanded = 0
        self.generated = 0
        self.fired: Counter[str] = Counter()
        self.new: Counter[str] = Counter()
        self.finding: Finding | None = None
        self.events: tuple[Event, ...] = ()
        self.cut = False
        self.add(start or self.collapse.parts(initial(cluster)), None)

    def add(self, parts: Parts, parent: tuple[int, Event] | None) -> int:
        """Number a new state."""
        number = self.numbers[parts] = len(self.parts)
        self.parts.append(parts)
        self.parents.append(parent)
        self.depths.append(self.depths[parent[0]] + 1 if parent else 0)
        return number

    def join(self, origin: int, target: int, event: Event) -> None:
        """Record an edge, or a self-loop for an event that changes nothing."""
        if origin == target:
            self.self_loops.append((origin, event))
        else:
            self.edges.append((origin, target, event))

    def state(self, number: int) -> State:
        """The state of this number."""
        return self.collapse.state(self.parts[number])

    @property
    def states(self) -> list[State]:
        """All states, in the order of their numbers; equal parts are the same objects."""
        return list(map(self.collapse.state, self.parts))

    def trace(self, number: int) -> tuple[Event, ...]:
        """The events of a shortest trace to a state."""
        events = []
        while (parent := self.parents[number]) is not None:
            number, event = parent
            events.append(event)
        return tuple(reversed(events))

    def coverage(self, judged: Mapping[str, int]) -> dict[str, Any]:
        """The coverage of the search as data, with how often each check had something to judge."""
        return {
            "states_distinct": len(self.parts),
            "states_generated": self.generated,
            "depth": max(self.depths),
            "events": dict(sorted(self.fired.items())),
            "events_new": dict(sorted(self.new.items())),
            "judged": judged,
        }
