"""The explored graph as text and numbers, for graph files and pictures.

A node is a state, an edge is an event from one state to another; two events between the same states
are two edges. The step that breaks an invariant leads to a separate node, because the search does
not continue from it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kvproof.model import termination
from kvproof.model.events import describe
from kvproof.model.state import State
from kvproof.strategies.explorer.search_graph import SearchGraph


class StateNode(NamedTuple):
    """One state. `label` lists the requests and transfers with their status; `over` is False for a
    broken state."""

    label: str
    depth: int
    initial: bool
    over: bool
    broken: bool


class Edge(NamedTuple):
    """One event between two states, by their numbers. `violating` is set on the trace of the
    finding."""

    origin: int
    target: int
    event: str
    violating: bool


class Graph(NamedTuple):
    """The graph as text and numbers. Node 0 is the initial state."""

    nodes: list[StateNode]
    edges: list[Edge]


def graph_of(reached: SearchGraph) -> Graph:
    """The reached graph. With a finding, its trace is marked up to the broken state."""
    taken = set(reached.events)
    leads = {(o, event): target for o, target, event in reached.edges if event in taken}
    at, last = 0, len(reached.events)
    path: set[tuple[int, int, str]] = set()
    nodes = [
        StateNode(_label(state, str(index)), depth, index == 0, termination.over(state), False)
        for index, (state, depth) in enumerate(zip(reached.states, reached.depths, strict=True))
    ]
    edges = [(origin, target, describe(event)) for origin, target, event in reached.edges]
    for number, event in enumerate(reached.events, 1):
        target = leads.get((at, event))
        if target is None and number < last:
            continue  # The last event changes nothing, so it is not an edge.
        if target is None:
            target = len(nodes)
            nodes.append(StateNode(str(target), number, False, False, False))
            edges.append((at, target, describe(event)))
        path.add((at, target, describe(event)))
        if number == last:
            name = reached.finding.invariant if reached.finding else "violation"
            label = f"{nodes[target].label}\nBROKEN: {name}"
            nodes[target] = nodes[target]._replace(label=label, over=False, broken=True)
        at = target
    return Graph(nodes, [Edge(*edge, edge in path) for edge in edges])


def _label(state: State, number: str) -> str:
    """The number of a state, and its requests and transfers."""
    return "\n".join((number, *_who(state)))


def _who(state: State) -> Iterator[str]:
    for engine in state.engines:
        held = ", ".join(
            f"{r.id} {r.status}" + (f" at {r.computed}" if r.computed else "")
            for r in engine.requests
        )
        if engine.dead:
            yield f"{engine.name}: dead"
        elif held:
            computing = " (computing)" if engine.step is not None or engine.steps else ""
            yield f"{engine.name}: {held}{computing}"
    for transfer in state.transfers:
        yield f"{transfer.request} {transfer.phase}"
    if state.ended:
        yield "ended: " + ", ".join(f"{request} on {engine}" for engine, request in state.ended)
