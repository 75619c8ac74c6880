"""Progress under fairness: a run that goes on, or waits, for ever though everybody does his part.

Everybody's part are his *duties*: an engine that has something to schedule is scheduled, a step's
output arrives, a transfer moves on (D gets what P offers, a read ends well or badly, a lease
nobody renews ends), and the user of a session goes on. A run is fair (weak fairness) if no duty
stays possible from some point on and is never done. Disturbances and new jobs need not come; a run
may rest where no duty is possible.

Cost: linear in the graph. Guarantee: on a search that ended by itself, every fair run comes to its
end exactly if there is no lasso. A lasso found in a search that was cut is real; none found there
says nothing.
"""

import functools
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import networkx as nx

from kvproof.invariants.invariant import Invariant
from kvproof.model import termination
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
from kvproof.strategies.explorer.exhaustive import StateGraph

DEADLOCK = "nothing can happen any more"
RESTS = "all that can still happen need not happen"
GOES_ROUND = "a fair run goes round for ever"

Duty = tuple[str, str]
"""What must not be put off for ever: a kind, and the engine or request it is about."""

Outgoing = list[list[tuple[int, Event]]]
"""For each state its events and where they lead."""


class Lasso(NamedTuple):
    """A fair run without end: a shortest way to where it stays, and a round that repeats.

    `kind` is DEADLOCK, RESTS or GOES_ROUND; the cycle is empty but for the last.
    """

    prefix: tuple[Event, ...]
    cycle: tuple[Event, ...]
    waiting: str
    kind: str


def duty(cluster: Cluster, event: Event) -> Duty | None:
    """The duty an event does, None where it need not happen."""
    if isinstance(event, Continue):
        return "Session", event.request
    if isinstance(event, Schedule | Complete):
        return type(event).__name__, event.engine
    if isinstance(event, TransferDone | TransferFail | LeaseExpire):
        return "KVTransfer", event.request
    if isinstance(event, Submit) and cluster.disaggregated and event.engine == cluster.decode.name:
        return "KVTransfer", event.request
    return None


def _outgoing(reached: StateGraph) -> Outgoing:
    outgoing: Outgoing = [[] for _ in reached.states]
    for origin, target, event in reached.edges:
        outgoing[origin].append((target, event))
    for origin, event in reached.self_loops:
        outgoing[origin].append((origin, event))
    return outgoing


def _components(reached: StateGraph, outgoing: Outgoing) -> list[list[int]]:
    """The strongly connected components of the expanded states that are not over, nearest first.
    The search expands in the order of discovery."""
    last = len(reached.states) - 1
    if reached.cut:
        last = max((i for i, events in enumerate(outgoing) if events), default=-1)
    stays = {i for i in range(last + 1) if not termination.over(reached.states[i])}
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
        # Where the model offers nothing but a step's output, other duties stay as they were.
        calm = [i for i in states if not all(isinstance(e, Complete) for _, e in outgoing[i])]
        self.calm = set(calm or states)

    def owed(self) -> set[Duty | None]:
        """Duties possible in every state and done nowhere: a fair run that stays here exists if
        there are none. A run that stays in a part of the component owes no less."""
        done = {duty(self.cluster, e) for edges in self.inside.values() for _, e in edges}
        return set.intersection(*(self.duties[i] for i in self.calm)) - done

    def _serves(self, wanted: Duty, target: int, event: Event) -> bool:
        """Whether an event does a duty, or leads to where it is impossible."""
        impossible = target in self.calm and wanted not in self.duties[target]
        return impossible or duty(self.cluster, event) == wanted

    def _way(
        self, start: int, wanted: Callable[[int, Event], bool]
    ) -> tuple[tuple[int, Event], ...]:
        """A shortest way whose last event is wanted. Each step: where it leads, and the event."""
        queue: deque[tuple[int, tuple[tuple[int, Event], ...]]] = deque([(start, ())])
        seen = {start}
        while queue:
            at, way = queue.popleft()
            for target, event in self.inside[at]:
                if wanted(target, event):
                    return (*way, (target, event))
                if target not in seen:
                    seen.add(target)
                    queue.append((target, (*way, (target, event))))
        raise AssertionError("a fair component has a way to each of its duties")

    def round(self, entry: int) -> tuple[Event, ...]:
        """A fair way from a state back to it: each duty is done or seen to be impossible."""
        walk: tuple[tuple[int, Event], ...] = ()
        at = entry
        for wanted in sorted({d for duties in self.duties.values() for d in duties if d}):
            spared = entry in self.calm and wanted not in self.duties[entry]
            if spared or any(self._serves(wanted, *step) for step in walk):
                continue
            walk += self._way(at, functools.partial(self._serves, wanted))
            at = walk[-1][0]
        if at != entry:
            walk += self._way(at, lambda target, _: target == entry)
        return tuple(event for _, event in walk)


def lasso(cluster: Cluster, reached: StateGraph) -> Lasso | None:
    """A fair run that never ends what was submitted, by the shortest way to where it stays; None
    where there is none. A search that ended with a finding is asked in vain: it is incomplete."""
    if reached.finding is not None:
        return None
    outgoing = _outgoing(reached)
    for states in _components(reached, outgoing):
        component = _Component(cluster, outgoing, states)
        if component.owed():
            continue
        entry = states[0]
        cycle = component.round(entry)
        kind = GOES_ROUND if cycle else RESTS if outgoing[entry] else DEADLOCK
        waiting = termination.waiting(reached.states[entry]) or "a transfer"
        return Lasso(reached.trace(entry), cycle, waiting, kind)
    return None


def no_progress(
    cluster: Cluster, reached: StateGraph, invariants: Iterable[Invariant]
) -> tuple[Finding, Lasso] | None:
    """What the invariant of kind `eventually` says of a graph, if it is among these."""
    eventually = next((i for i in invariants if i.kind == "eventually"), None)
    found = lasso(cluster, reached) if eventually else None
    if eventually is None or found is None:
        return None
    events = "; ".join(map(describe, found.cycle))
    end = f"{found.kind} ({events})" if events else found.kind
    return Finding(eventually.id, (f"{found.waiting} was submitted", end)), found
