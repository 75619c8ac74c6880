"""The explored graph as a picture, SVG or PNG, for small graphs.

Time goes from left to right: a state is in the column of its depth, with its number above it. An
edge has the colour of its kind of event; in small graphs it also has the name of the kind. Needs
matplotlib, an optional dependency. The file is deterministic.
"""

import io
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import networkx as nx
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kvproof.reports.graph import Graph, Node
from kvproof.reports.places import Place, places

COLOURS = {
    "Submit": "#1f77b4",
    "Schedule": "#2ca02c",
    "Complete": "#9467bd",
    "TransferDone": "#17becf",
    "TransferFail": "#e08214",
    "TransferLost": "#8c510a",
    "Abort": "#111111",
    "LeaseExpire": "#e377c2",
    "Continue": "#bcbd22",
    "StrayReport": "#d62728",
    "Evict": "#b5a800",
    "ResetPrefixCache": "#6b7fa8",
    "ResetRunning": "#2f4b7c",
}
"""The colour of each kind of event."""

LEGEND_WIDE = 1.8
"""The space for one entry of the legend, in inches."""

SEVERAL = "#999999"
"""The colour of an edge that stands for events of several kinds."""

RED = "#f4665c"
"""The colour of the violation and of the path to it; no kind of event has this colour."""

SIZE = 300
"""Area of a state's mark, in square points."""

NAMED_MAX = 60
"""The maximum number of states with names of events at the edges; larger pictures have only
colours."""

STYLE: list[Any] = ["default", {"svg.hashsalt": "kvproof", "svg.fonttype": "none"}]
"""Settings that ignore the user's configuration, avoid random ids, and keep text as text."""


class Room(NamedTuple):
    """The space of an element, in inches."""

    wide: float
    tall: float


NAMED, UNNAMED = Room(1.35, 0.5), Room(0.95, 0.4)
"""The space of each state, with and without the names of events."""

LETTER = Room(0.058, 0.14)
"""The space of each letter of a name."""

BEND = -0.3
"""The bend of a curved line: its middle is twice this fraction of its length to the left of the
straight line (a line to the left bends down)."""

NAME_AT = (0.55, 0.48, 0.62, 0.41, 0.69, 0.34, 0.76, 0.27)
"""The possible positions of the name on a line, as fractions of the line, the best first."""

Point = tuple[float, float]
"""Coordinates in inches from the left and from the top."""


class Mark(NamedTuple):
    """The marker of a state, and its meaning."""

    says: str
    shape: str
    colour: str


STATE = Mark("state", "o", "white")
INITIAL = Mark("initial state", "o", "#ffe08a")
OVER = Mark("all requests ended", "s", "#dcdcdc")
BROKEN = Mark("violation", "o", RED)


class Line(NamedTuple):
    """All edges from one state to another: the kinds of their events, sorted. `violating` is True
    if one of them is on the path to the violation."""

    origin: int
    target: int
    kinds: tuple[str, ...]
    violating: bool

    @property
    def colour(self) -> str:
        """The colour of the line."""
        return COLOURS[self.kinds[0]] if len(self.kinds) == 1 else SEVERAL


def svg(graph: Graph) -> str:
    """The graph as SVG with searchable text."""
    return _rendered(graph, "svg", metadata={"Date": None}).decode("utf-8")


def png(graph: Graph) -> bytes:
    """The graph as PNG."""
    return _rendered(graph, "png", dpi=110)


def lines(graph: Graph) -> list[Line]:
    """The lines of the picture: one line for all edges from one state to another."""
    kinds: dict[tuple[int, int], set[str]] = defaultdict(set)
    for edge in graph.edges:
        kinds[edge.origin, edge.target].add(edge.event.partition("(")[0])
    red = {(edge.origin, edge.target) for edge in graph.edges if edge.violating}
    return [Line(*ends, tuple(sorted(kinds[ends])), ends in red) for ends in kinds]


def _rendered(graph: Graph, kind: str, **options: Any) -> bytes:
    with style.context(STYLE), io.BytesIO() as file:
        figure(graph).savefig(file, format=kind, **options)
        return file.getvalue()


def figure(graph: Graph) -> Figure:
    """A figure of the graph, in the size that the graph needs."""
    at = places(graph)
    named = len(graph.nodes) <= NAMED_MAX
    columns = 1 + max(x for x, _ in at)
    low, high = min(y for _, y in at), max(y for _, y in at)
    room = NAMED if named else UNNAMED
    size = max(7.5, columns * room.wide), max(2.0, (1 + high - low) * room.tall) + 1.2
    made = Figure(figsize=size, layout="constrained")
    axes = made.add_subplot()
    axes.set_axis_off()
    axes.set_title(_title(graph), loc="left", fontsize=11)
    shown = lines(graph)
    _draw_lines(axes, shown, at)
    if named:
        _name_lines(axes, shown, at)
    handles = [*_draw_states(axes, graph, at), *_legend(shown)]
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(high + 0.7, low - 0.7)
    made.legend(
        handles=handles,
        loc="outside lower left",
        ncols=int(size[0] // LEGEND_WIDE),
        fontsize=9,
        markerscale=0.6,
    )
    return made


def _draw_lines(axes: Any, shown: list[Line], at: list[Place]) -> None:
    for bend in (0.0, BEND):
        part = [line for line in shown if _bend(line, at) == bend]
        red = [line for line in part if line.violating]
        _draw(axes, red, at, bend, edge_color=RED, width=7, arrowstyle="-")
        _draw(axes, part, at, bend, edge_color=[line.colour for line in part], width=1.3)


def _bend(line: Line, at: list[Place]) -> float:
    """The bend of a line: a line that does not lead to the right is curved, because it may overlap
    others."""
    return 0.0 if at[line.target][0] > at[line.origin][0] else BEND


def _draw(axes: Any, shown: list[Line], at: list[Place], bend: float, **look: Any) -> None:
    ends = [(line.origin, line.target) for line in shown]
    nx.draw_networkx_edges(
        nx.DiGraph(ends),
        dict(enumerate(at)),
        edgelist=ends,
        connectionstyle=f"arc3,rad={bend}",
        node_size=SIZE,
        ax=axes,
        **look,
    )


def _name_lines(axes: Any, shown: list[Line], at: list[Place]) -> None:
    for line, (x, y) in zip(shown, _name_places(shown, at), strict=True):
        axes.text(
            x / NAMED.wide,
            y / NAMED.tall,
            "\n".join(line.kinds),
            color=line.colour,
            fontsize=7,
            ha="center",
            va="center",
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"},
        )


def _name_places(shown: list[Line], at: list[Place]) -> list[Point]:
    """The positions of the names of the lines, in inches: on the line, where no other name is. If
    no position is free, the first one is used."""
    found: list[Point] = []
    for line in shown:
        tried = [_on(line, at, part) for part in NAME_AT]
        free = [
            (x, y)
            for x, y in tried
            if not any(
                abs(x - u) < (_wide(line) + _wide(other)) / 2
                and abs(y - v) < LETTER.tall * (len(line.kinds) + len(other.kinds)) / 2
                for other, (u, v) in zip(shown, found, strict=False)
            )
        ]
        found.append((free or tried)[0])
    return found


def _wide(line: Line) -> float:
    return LETTER.wide * max(map(len, line.kinds))


def _on(line: Line, at: list[Place], part: float) -> Point:
    """The point at a fraction of a line, in inches. A curved line is matplotlib's arc3."""
    (x, y), (u, v) = (
        (across * NAMED.wide, down * NAMED.tall)
        for across, down in (at[line.origin], at[line.target])
    )
    off = 2 * part * (1 - part) * _bend(line, at)
    return x + part * (u - x) - off * (v - y), y + part * (v - y) + off * (u - x)


def _draw_states(axes: Any, graph: Graph, at: list[Place]) -> Iterator[Any]:
    """Draw the states, and yield their entries of the legend."""
    marks = [_mark(node) for node in graph.nodes]
    for mark in (STATE, INITIAL, OVER, BROKEN):
        there = [place for place, its in zip(at, marks, strict=True) if its == mark]
        if there:
            across, down = zip(*there, strict=True)
            yield axes.scatter(
                across,
                down,
                s=SIZE,
                c=mark.colour,
                marker=mark.shape,
                edgecolors="black",
                zorder=3,
                label=mark.says,
            )
    for number, (x, y) in enumerate(at):
        axes.text(x, y, str(number), fontsize=8, ha="center", va="center", zorder=4)


def _mark(node: Node) -> Mark:
    if node.broken:
        return BROKEN
    if node.initial:
        return INITIAL
    return OVER if node.over else STATE


def _title(graph: Graph) -> str:
    size = f"{len(graph.nodes)} states, {len(graph.edges)} events that lead from one to another"
    broken = [node.label.splitlines()[-1] for node in graph.nodes if node.broken]
    return "; ".join((size, *broken))


def _legend(shown: list[Line]) -> Iterator[Line2D]:
    """The entries of the legend for the lines."""
    kinds = {kind for line in shown for kind in line.kinds}
    for kind, colour in COLOURS.items():
        if kind in kinds:
            yield Line2D([], [], color=colour, label=kind)
    if any(len(line.kinds) > 1 for line in shown):
        yield Line2D([], [], color=SEVERAL, label="several kinds")
    if any(line.violating for line in shown):
        yield Line2D([], [], color=RED, linewidth=7, label="path to the violation")
