"""The explored graph as a file: GraphML for programs, DOT for Graphviz."""

from collections.abc import Callable
from pathlib import Path

import networkx as nx

from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown
from kvproof.model.files.writing import check_new, write_new
from kvproof.reports.graph import Graph, graph_of
from kvproof.reports.xml_text import xml_text
from kvproof.strategies.explorer.search_graph import SearchGraph

RED = ", color=red, fontcolor=red, penwidth=2"
"""The DOT attributes of the violation."""


def graphml(graph: Graph) -> str:
    """The graph as GraphML. Nodes carry label, depth, initial, over and broken, edges the event."""
    made: nx.MultiDiGraph[int] = nx.MultiDiGraph()
    for number, node in enumerate(graph.nodes):
        made.add_node(number, **node._replace(label=xml_text(node.label))._asdict())
    for number, edge in enumerate(graph.edges):
        # The key becomes the id of the edge, which must be unique in the file.
        made.add_edge(edge.origin, edge.target, key=f"e{number}", event=xml_text(edge.event))
    return "\n".join(nx.generate_graphml(made, named_key_ids=True)) + "\n"


def dot(graph: Graph) -> str:
    """The graph as DOT: the initial state is bold, states in which all is over have a double frame,
    the trace of the finding is red."""
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


FORMATS: dict[str, Callable[[Graph], str]] = {
    ".graphml": graphml,
    ".dot": dot,
}
"""The writer of each file format, by the suffix of the file name."""


def check(path: Path) -> None:
    """Raise UsageError if a graph cannot be written to this path. Call it before a long search."""
    if path.suffix not in FORMATS:
        raise UsageError(
            f"The file {shown(path)} is no known kind of graph. "
            f"Use a name that ends in {' or '.join(FORMATS)}."
        )
    check_new(path)


def write(path: Path, reached: SearchGraph) -> None:
    """Write the graph to a new file in the format of its suffix. Raises UsageError if the file
    exists or cannot be written, or if the suffix is unknown."""
    check(path)
    made = FORMATS[path.suffix](graph_of(reached))
    write_new(path, made)


def quoted(text: str) -> str:
    """A text as a DOT string that shows it unchanged."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
