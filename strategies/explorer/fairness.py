"""Progress under weak fairness: find a run that never ends although every duty is done.

The *duties* are: an engine that has requests to schedule is scheduled; the output of a step
arrives; a transfer progresses (D receives what P offers, a read succeeds or fails, a lease that is
not renewed expires); and the user of a session continues it. A run is fair (weak fairness) if no
duty is possible forever from some point on without being done. Disturbances and new jobs need not
occur. A run may stop in a state in which no duty is possible.

Cost: linear in the graph. Guarantee: if the search ended by itself, every fair run ends if and only
if there is no lasso. A lasso found in a search that was cut is real; if none is found there,
nothing follows.
"""

import functools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import networkx as nx

from kvproof.invariants.check import Check
from kvproof.model import termination
from kvproof.model.because import Reason, reason
from kvproof.model.config import Cluster
from kvproof.model.events import (
    Complete,
    Continue,
    Event,
    LeaseExpire,
    Schedule,
    Submit,
    TransferDone,
    TransferFail,
    describe,
)
from kvproof.model.finding import Finding
from kvproof.model.state import State
from kvproof.model.wording import literal
from kvproof.strategies.explorer.search_graph import SearchGraph
from kvproof.strategies.waits import HangContext, stuck

DEADLOCK = reason("deadlock", "no event is possible any more")
RESTS = reason("rests", "no event that must happen is possible any more")
GOES_ROUND = reason("goes_round", "a fair run repeats these events forever")

Duty = tuple[str, str]
"""An event that must not be postponed forever: its kind, and the engine or request that it
concerns."""

Outgoing = list[list[tuple[int, Event]]]
"""For each state, its events and the states that they lead to."""


class Lasso(NamedTuple):
    """A fair run without end: a shortest trace to its cycle, and the cycle.

    `kind` is DEADLOCK, RESTS or GOES_ROUND; the cycle is empty unless `kind` is GOES_ROUND. `state`
    is the state after the trace and after each round of the cycle.
    """

    prefix: tuple[Event, ...]
    cycle: tuple[Event, ...]
    state: State
    kind: Reason


def duty(cluster: Cluster, event: Event) -> Duty | None:
    """The duty that an event fulfils, None if the event need not happen."""
    if isinstance(event, Continue):
        return "Session", event.request
    if isinstance(event, Schedule | Complete):
        return type(event).__name__, event.engine
    if isinstance(event, TransferDone | TransferFail | LeaseExpire):
        return "KVTransfer", event.request
    if isinstance(event, Submit) and cluster.disaggregated and event.engine == cluster.decode.name:
        return "KVTransfer", event.request
    return None


def _outgoing(reached: SearchGraph, count: int) -> Outgoing:
    outgoing: Outgoing = [[] for _ in range(count)]
    for origin, target, event in reached.edges:
        outgoing[origin].append((target, event))
    for origin, event in reached.self_loops:
        outgoing[origin].append((origin, event))
    return outgoing


def _components(states: Sequence[State], outgoing: Outgoing, *, cut: bool) -> list[list[int]]:
    """The strongly connected components of the expanded states in which not all requests have
    ended, in breadth-first order. The search expands states in the order of discovery."""
    last = len(states) - 1
    if cut:
        last = max((i for i, events in enumerate(outgoing) if events), default=-1)
    stays = {i for i in range(last + 1) if not termination.over(states[i])}
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(sorted(stays))
    graph.add_edges_from((i, j) for i in sorted(stays) for j, _ in outgoing[i] if j in stays)
    return sorted(sorted(c) for c in nx.strongly_connected_components(graph))


class _Component:
    """A component as a part of the graph, with the duties of its states."""

    def __init__(self, cluster: Cluster, outgoing: Outgoing, states: Collection[int]) -> None:
        self.cluster = cluster
        self.inside = {i: [(j, e) for j, e in outgoing[i] if j in states] for i in states}
        self.duties = {i: {duty(cluster, e) for _, e in outgoing[i]} - {None} for i in states}
        # If the output of a step is the only possible event, the other duties do not change.
        calm = [i for i in states if not all(isinstance(e, Complete) for _, e in outgoing[i])]
        self.calm = set(calm or states)

    def owed(self) -> set[Duty | None]:
        """The duties that are possible in every state of the component and are done by no event in
        it. A fair run that stays in the component exists if and only if there is none; a run that
        stays in a part of the component has at least the same duties."""
        done = {duty(self.cluster, e) for edges in self.inside.values() for _, e in edges}
        return set.intersection(*(self.duties[i] for i in self.calm)) - done

    def _serves(self, wanted: Duty, edge: tuple[int, Event]) -> bool:
        """Whether an event fulfils a duty, or leads to a state in which the duty is not
        possible."""
        target, event = edge
        impossible = target in self.calm and wanted not in self.duties[target]
        return impossible or duty(self.cluster, event) == wanted

    def _way(
        self, start: int, wanted: Callable[[tuple[int, Event]], bool]
    ) -> tuple[tuple[int, Event], ...]:
        """A shortest path whose last event is wanted. Each step is the target state and the
        event."""
        queue: deque[tuple[int, tuple[tuple[int, Event], ...]]] = deque([(start, ())])
        seen = {start}
        while queue:
            at, way = queue.popleft()
            for target, event in self.inside[at]:
                if wanted((target, event)):
                    return (*way, (target, event))
                if target not in seen:
                    seen.add(target)
                    queue.append((target, (*way, (target, event))))
        raise AssertionError("a fair component has a path to each of its duties")

    def round(self, entry: int) -> tuple[Event, ...]:
        """A fair cycle from a state to itself: it fulfils each duty or visits a state in which the
        duty is not possible."""
        walk: tuple[tuple[int, Event], ...] = ()
        at = entry
        for wanted in sorted({d for duties in self.duties.values() for d in duties if d}):
            spared = entry in self.calm and wanted not in self.duties[entry]
            if spared or any(self._serves(wanted, step) for step in walk):
                continue
            walk += self._way(at, functools.partial(self._serves, wanted))
            at = walk[-1][0]
        if at != entry:
            walk += self._way(at, lambda edge: edge[0] == entry)
        return tuple(event for _, event in walk)


def lasso(cluster: Cluster, reached: SearchGraph) -> Lasso | None:
    """A fair run in which some submitted request never ends, with the shortest trace to its cycle;
    None if there is none. The result is None for a search that ended with a finding, because its
    graph is incomplete."""
    if reached.finding is not None:
        return None
    states = reached.states
    outgoing = _outgoing(reached, len(states))
    for numbers in _components(states, outgoing, cut=reached.cut):
        component = _Component(cluster, outgoing, numbers)
        if component.owed():
            continue
        entry = numbers[0]
        cycle = component.round(entry)
        kind = GOES_ROUND if cycle else RESTS if outgoing[entry] else DEADLOCK
        return Lasso(reached.trace(entry), cycle, states[entry], kind)
    return None


def no_progress(
    cluster: Cluster, reached: SearchGraph, invariants: Iterable[Check]
) -> tuple[Finding, Lasso] | None:
    """The finding of the `eventually` invariant on a graph, if this invariant is among
    `invariants`."""
    eventually = next((i for i in invariants if i.kind == "eventually"), None)
    found = lasso(cluster, reached) if eventually else None
    if eventually is None or found is None:
        return None
    end = found.kind
    if found.cycle:
        events = literal("; ".join(map(describe, found.cycle)))
        kinds = [type(event).__name__ for event in found.cycle]
        end = reason(end.kind, f"{end.says}: {events}", events=kinds)
    why, about = stuck(cluster, found.state, HangContext(found.cycle))
    return Finding(eventually.id, (*why, end), about), found
