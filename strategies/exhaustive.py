"""The explorer: breadth-first search over the states of the model.

Cost: one application per state and stimulus; memory holds every distinct state. Guarantee: if the
search ends by itself, every state reachable in the scope was seen and every invariant held in it;
a violation comes with a shortest trace. A search cut by `states_max` is UNKNOWN.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import networkx as nx

from kvproof.invariants.invariant import Finding, Invariant, broken
from kvproof.invariants.registry import INVARIANTS
from kvproof.model import cluster as model
from kvproof.model import goal
from kvproof.model.config import Cluster
from kvproof.model.events import Event, describe
from kvproof.model.rules import SPEC, Rules
from kvproof.model.state import State
from kvproof.strategies.verdict import Outcome, Verdict

Progress = Callable[[int, int], None]
"""Called now and then with the number of distinct states and of those still to expand."""


@dataclass
class Explored:
    """What a search has reached. States are numbered in the order of discovery; 0 is the initial
    one. `parents` gives each state its predecessor on a shortest trace, and the event."""

    states: list[State] = field(default_factory=list)
    parents: list[tuple[int, Event] | None] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    edges: list[tuple[int, int, Event]] = field(default_factory=list)
    generated: int = 0
    finding: Finding | None = None
    events: tuple[Event, ...] = ()
    cut: bool = False

    def trace(self, index: int) -> tuple[Event, ...]:
        """The events of a shortest way to a state."""
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
    rules: Rules,
    invariants: Sequence[Invariant],
    states_max: int,
    progress: Progress | None = None,
) -> Explored:
    """Explore until everything is seen, an invariant breaks, or `states_max` states are known."""
    reached = Explored([model.initial(cluster)], [None], [0])
    known = {reached.states[0]: 0}
    queue = deque([0])
    while queue:
        index = queue.popleft()
        state = reached.states[index]
        for stimulus in model.stimuli(cluster, state):
            step = model.apply(cluster, state, stimulus, rules)
            reached.generated += 1
            finding = next(broken(cluster, step, invariants), None)
            if finding is not None:
                reached.finding = finding
                reached.events = (*reached.trace(index), step.event)
                return reached
            target = known.get(step.after)
            if target is None:
                target = len(reached.states)
                known[step.after] = target
                reached.states.append(step.after)
                reached.parents.append((index, step.event))
                reached.depths.append(reached.depths[index] + 1)
                queue.append(target)
            if target != index:
                reached.edges.append((index, target, step.event))
        if progress and index % 500 == 0:
            progress(len(reached.states), len(queue))
        if len(reached.states) > states_max:
            reached.cut = True
            return reached
    return reached


def stuck(reached: Explored, invariants: Iterable[Invariant]) -> tuple[Finding, int] | None:
    """A state from which the end of all submitted requests cannot be reached any more."""
    eventually = next((i for i in invariants if i.kind == "eventually"), None)
    if eventually is None:
        return None
    before: list[list[int]] = [[] for _ in reached.states]
    for origin, target, _ in reached.edges:
        before[target].append(origin)
    good = [i for i, state in enumerate(reached.states) if goal.over(state)]
    can = set(good)
    while good:
        for origin in before[good.pop()]:
            if origin not in can:
                can.add(origin)
                good.append(origin)
    leads_on = {origin for origin, _, _ in reached.edges}
    blocked = [i for i in range(len(reached.states)) if i not in can]
    if not blocked:
        return None
    # The first state where nothing happens any more tells more than the first that leads there.
    index = min(blocked, key=lambda i: (i in leads_on, i))
    waiting = goal.waiting(reached.states[index])
    return Finding(eventually.id, (f"{waiting} was submitted", "no continuation ends it")), index


def explore(
    cluster: Cluster,
    rules: Rules = SPEC,
    invariants: Sequence[Invariant] | None = None,
    states_max: int = 1_000_000,
    progress: Progress | None = None,
) -> Outcome:
    """The verdict of an exhaustive search: EXHAUSTED, VIOLATED with a shortest trace, or UNKNOWN
    where `states_max` cut it."""
    chosen = list(INVARIANTS.values()) if invariants is None else list(invariants)
    start = time.perf_counter()
    reached = search(cluster, rules, chosen, states_max, progress)
    finding, events = reached.finding, reached.events
    if finding is None and not reached.cut:
        blocked = stuck(reached, chosen)
        if blocked is not None:
            finding, events = blocked[0], reached.trace(blocked[1])
    coverage = {
        "states_distinct": len(reached.states),
        "states_generated": reached.generated,
        "depth": max(reached.depths),
        "events": dict(sorted(Counter(type(e).__name__ for _, _, e in reached.edges).items())),
    }
    seconds = time.perf_counter() - start
    if finding is not None:
        return Outcome(Verdict.VIOLATED, coverage, events, finding, seconds=seconds)
    if reached.cut:
        reason = f"the search was cut at {states_max} states"
        return Outcome(Verdict.UNKNOWN, coverage, reason=reason, seconds=seconds)
    return Outcome(Verdict.EXHAUSTED, coverage, seconds=seconds)
