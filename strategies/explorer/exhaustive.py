"""Breadth-first search over the states of the model, in its simplest form.

`kvproof explore` runs `packed`, which must visit the same states in the same order; tests compare
it with this search. Cost: one call of `apply` for each state and stimulus; memory holds every
distinct state.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import networkx as nx

from kvproof.invariants.invariant import Invariant, broken
from kvproof.invariants.registry import gravest
from kvproof.model.config import Cluster
from kvproof.model.config.features.registry import refuse_unmodelled
from kvproof.model.events import Event, bare, describe
from kvproof.model.finding import Finding
from kvproof.model.reference import apply as model
from kvproof.model.state import State, initial
from kvproof.model.step import Step

Progress = Callable[[int, int], None]
"""Called regularly with the number of distinct states and the number of states still to expand."""


class StateGraph(Protocol):
    """The states that a search has reached, and the events between them. States are numbered in the
    order of discovery; 0 is the initial state. Events have no block ids (see `filled`)."""

    @property
    def states(self) -> Sequence[State]:
        """The states in the order of their numbers."""

    @property
    def parents(self) -> Sequence[tuple[int, Event] | None]:
        """The predecessor of each state on a shortest trace, and the event; None for state 0."""

    @property
    def depths(self) -> Sequence[int]:
        """The number of events on a shortest trace to each state."""

    @property
    def edges(self) -> Sequence[tuple[int, int, Event]]:
        """From, to, and the event."""

    @property
    def self_loops(self) -> Sequence[tuple[int, Event]]:
        """Events that change nothing, with their state."""

    @property
    def finding(self) -> Finding | None:
        """The finding that ended the search, or None."""

    @property
    def events(self) -> tuple[Event, ...]:
        """The trace to the finding; its last event leads to no state of the graph."""

    @property
    def cut(self) -> bool:
        """Whether the search ended before all states were explored."""

    def trace(self, index: int, /) -> tuple[Event, ...]:
        """The events of a shortest trace to a state."""


@dataclass
class Exploration:
    """What a search has reached. States are numbered in the order of discovery; 0 is the initial
    one. `parents` gives each state its predecessor on a shortest trace, and the event. An event
    that changes nothing is no edge: it is in `self_loops`, with its state."""

    states: list[State] = field(default_factory=list)
    parents: list[tuple[int, Event] | None] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    edges: list[tuple[int, int, Event]] = field(default_factory=list)
    self_loops: list[tuple[int, Event]] = field(default_factory=list)
    generated: int = 0
    finding: Finding | None = None
    events: tuple[Event, ...] = ()
    cut: bool = False

    def trace(self, index: int) -> tuple[Event, ...]:
        """The events of a shortest trace to a state."""
        events: list[Event] = []
        while (parent := self.parents[index]) is not None:
            index, event = parent
            events.append(event)
        return tuple(reversed(events))

    def graph(self) -> "nx.MultiDiGraph[int]":
        """The reached graph: nodes are state numbers, edges carry the event as text."""
        graph: nx.MultiDiGraph[int] = nx.MultiDiGraph()
        graph.add_nodes_from(range(len(self.states)))
        graph.add_edges_from((a, b, {"event": describe(e)}) for a, b, e in self.edges)
        return graph


def search(
    cluster: Cluster,
    invariants: Sequence[Invariant],
    states_max: int,
    *,
    progress: Progress | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> Exploration:
    """Explore until all states are explored, an invariant breaks, or `states_max` states are known.
    `on_step` is called with every step, before the invariants are checked."""
    refuse_unmodelled(cluster)
    reached = Exploration([initial(cluster)], [None], [0])
    known = {reached.states[0]: 0}
    queue = deque([0])
    while queue:
        index = queue.popleft()
        state = reached.states[index]
        for stimulus in model.stimuli(cluster, state):
            step = model.apply(cluster, state, stimulus)
            reached.generated += 1
            if on_step:
                on_step(step)
            findings = gravest(broken(cluster, step, invariants))
            if findings:
                reached.finding = findings[0]
                reached.events = (*reached.trace(index), bare(step.event))
                return reached
            event = bare(step.event)
            target = known.get(step.after)
            if target is None:
                target = len(reached.states)
                known[step.after] = target
                reached.states.append(step.after)
                reached.parents.append((index, event))
                reached.depths.append(reached.depths[index] + 1)
                queue.append(target)
            if target != index:
                reached.edges.append((index, target, event))
            else:
                reached.self_loops.append((index, event))
        if progress and index % 500 == 0:
            progress(len(reached.states), len(queue))
        if len(reached.states) > states_max:
            reached.cut = True
            return reached
    return reached
