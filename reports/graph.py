"""The explored graph as a file: GraphML for programs, DOT for pictures; small ones drawn.

A node is a state, an edge an event that leads from one to another; two events between the same
states are two edges. The step that breaks an invariant leads to a node of its own, since the search
does not follow it.
"""

import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import networkx as nx

from kvproof.model import termination
from kvproof.model.errors import UsageError
from kvproof.model.events import describe
from kvproof.model.state import State
from kvproof.model.traces.new_file import write_new
from kvproof.strategies.explorer.exhaustive import StateGraph

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters an XML file cannot hold; a name in a cluster may."""


class Node(NamedTuple):
    """One state. `label` says in a few words who is where; `over` is never said of a broken one."""

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
    """What was reached, as text and numbers. Node 0 is the initial state."""

    nodes: list[Node]
    edges: list[Edge]


def graph_of(reached: StateGraph) -> Graph:
    """The reached graph. With a finding, its trace is marked up to the broken state."""
    taken = set(reached.events)
    leads = {(o, event): target for o, target, event in reached.edges if event in taken}
    at, last = 0, len(reached.events)
    path: set[tuple[int, int, str]] = set()
    nodes = [
        Node(_label(str(index), state), depth, index == 0, termination.over(state), False)
        for index, (state, depth) in enumerate(zip(reached.states, reached.depths, strict=True))
    ]
    edges = [(origin, target, describe(event)) for origin, target, event in reached.edges]
    for number, event in enumerate(reached.events, 1):
        target = leads.get((at, event))
        if target is None and number < last:
            continue  # It changes nothing, and is no edge.
        if target is None:
            target = len(nodes)
            nodes.append(Node(str(target), number, False, False, False))
            edges.append((at, target, describe(event)))
        path.add((at, target, describe(event)))
        if number == last:
            name = reached.finding.invariant if reached.finding else "violation"
            label = f"{nodes[target].label}\nBROKEN: {name}"
            nodes[target] = nodes[target]._replace(label=label, over=False, broken=True)
        at = target
    return Graph(nodes, [Edge(*edge, edge in path) for edge in edges])


def graphml(graph: Graph) -> str:
    """The graph as GraphML. Nodes carry label, depth, initial, over and broken, edges the event."""
    made: nx.MultiDiGraph[int] = nx.MultiDiGraph()
    for number, node in enumerate(graph.nodes):
        made.add_node(number, **node._replace(label=_xml(node.label))._asdict())
    for number, edge in enumerate(graph.edges):
        # The key becomes the id of the edge, which must be its own in the whole file.
        made.add_edge(edge.origin, edge.target, key=f"e{number}", event=_xml(edge.event))
    return "\n".join(nx.generate_graphml(made, named_key_ids=True)) + "\n"


def dot(graph: Graph) -> str:
    """The graph as DOT: the initial state bold, states that are over framed twice, the trace of the
    finding in red."""
    lines = [
        "digraph kvproof {",
        '  node [shape=box, style=rounded, fontname="Helvetica"];',
        '  edge [fontname="Helvetica", fontsize=10];',
    ]
    for number, node in enumerate(graph.nodes):
        more = ', style="rounded,bold"' if node.initial else ""
        more += ", peripheries=2" if node.over else ""
        more += RED if node.broken else ""
        lines.append(f"  {number} [label={quoted(node.label)}{more}];")
    for edge in graph.edges:
        more = RED if edge.violating else ""
        lines.append(f"  {edge.origin} -> {edge.target} [label={quoted(edge.event)}{more}];")
    return "\n".join([*lines, "}"]) + "\n"


RED = ", color=red, fontcolor=red, penwidth=2"


def svg(graph: Graph) -> str:
    """A small graph drawn, as SVG. Needs matplotlib, as `png` does."""
    from kvproof.reports import picture

    return picture.svg(graph)


def png(graph: Graph) -> bytes:
    """A small graph drawn, as PNG."""
    from kvproof.reports import picture

    return picture.png(graph)


FORMATS: dict[str, Callable[[Graph], str | bytes]] = {
    ".graphml": graphml,
    ".dot": dot,
    ".svg": svg,
    ".png": png,
}
"""How a graph is written, by the end of the file's name."""

DRAWN = (".svg", ".png")
"""The formats for small graphs only."""

UNDRAWN = " or ".join(suffix for suffix in FORMATS if suffix not in DRAWN)

DRAWN_MAX = 150
"""States of a graph that is drawn, at most: with more nobody can follow a line."""


def check(path: Path) -> None:
    """Raise UsageError where a graph cannot be written there: ask before a long search."""
    if path.suffix not in FORMATS:
        *most, last = FORMATS
        raise UsageError(
            f"The file {path} is no known kind of graph. "
            f"Write a name that ends in {', '.join(most)} or {last}."
        )
    if path.suffix in DRAWN and importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            f"The picture {path} needs matplotlib, which is not installed. "
            f"Write pip install 'kvproof[picture]', or a name that ends in {UNDRAWN}."
        )
    if path.exists():
        raise UsageError(
            f"The file {path} exists and is not overwritten. Write the name of a new file."
        )


def check_size(path: Path, states: int) -> None:
    """Raise UsageError where a graph with so many states is not drawn."""
    if path.suffix in DRAWN and states > DRAWN_MAX:
        raise UsageError(
            f"The graph has more than {DRAWN_MAX} states, too many for the picture {path}. "
            f"Write a smaller --config, or a name that ends in {UNDRAWN}."
        )


def write(path: Path, reached: StateGraph) -> None:
    """Write the graph to a new file, as its suffix says. Raises UsageError where it exists, cannot
    be written, has another suffix, or is a picture of too many states."""
    check(path)
    check_size(path, len(reached.states))
    made = FORMATS[path.suffix](graph_of(reached))
    write_new(path, made)


def quoted(text: str) -> str:
    """A text as a DOT string that shows it as it is."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _xml(text: str) -> str:
    return NOT_XML.sub("\ufffd", text)


def _label(number: str, state: State) -> str:
    """The number of a state, and who is where."""
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
