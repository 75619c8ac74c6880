"""The explored graph as a file: as many states and events as the search saw, and readable text."""

from pathlib import Path

import networkx as nx
import pytest

from kvproof.invariants.registry import INVARIANTS
from kvproof.model.events import Submit, describe
from kvproof.model.faults.registry import FAULTS
from kvproof.model.presets import CLUSTERS
from kvproof.reports.graph import graph_of
from kvproof.reports.graph_file import dot, graphml, write
from tests.breadth_first import Reached, search
from tests.planted import under

pytestmark = pytest.mark.exhaustive

ALL = tuple(INVARIANTS.values())


def healthy(name: str) -> Reached:
    return search(CLUSTERS[name], ALL, 10_000)


def broken_by(name: str) -> Reached:
    fault = FAULTS[name]
    return under([fault], search, CLUSTERS[fault.cluster], ALL, 10_000)


def read(path: Path) -> "nx.MultiDiGraph[int]":
    return nx.read_graphml(path, node_type=int, force_multigraph=True)


@pytest.mark.parametrize("name", ["full", "pd-losing"])
def test_graphml_holds_what_was_reached(name: str, tmp_path: Path) -> None:
    reached = healthy(name)
    write(tmp_path / "g.graphml", reached)
    graph = read(tmp_path / "g.graphml")
    assert graph.number_of_nodes() == len(reached.states)
    assert graph.number_of_edges() == len(reached.edges)
    assert [graph.nodes[n]["depth"] for n in sorted(graph)] == reached.depths
    assert [n for n in graph if graph.nodes[n]["initial"]] == [0]
    assert not any(graph.nodes[n]["broken"] for n in graph)
    wanted = [(origin, target, describe(event)) for origin, target, event in reached.edges]
    assert sorted(graph.edges(data="event")) == sorted(wanted)
    # From every state the end can be reached, and the ends are marked.
    ends = [n for n in graph if graph.nodes[n]["over"]]
    assert set(ends).union(*(nx.ancestors(graph, end) for end in ends)) == set(graph)


def test_the_step_that_breaks_leads_to_a_node_of_its_own(tmp_path: Path) -> None:
    reached = broken_by("double_free")
    write(tmp_path / "g.graphml", reached)
    graph = read(tmp_path / "g.graphml")
    assert graph.number_of_nodes() == len(reached.states) + 1
    assert graph.number_of_edges() == len(reached.edges) + 1
    [broken] = [n for n in graph if graph.nodes[n]["broken"]]
    assert graph.nodes[broken]["label"].endswith("BROKEN: pool_adds_up")
    assert graph.nodes[broken]["depth"] == len(reached.events)
    assert nx.shortest_path_length(graph, 0, broken) == len(reached.events)
    assert not graph.nodes[broken]["over"]


def test_strange_names_are_kept(tmp_path: Path) -> None:
    """A name in a cluster file may hold anything, also what XML cannot hold."""
    name = 'r"<&>\n\x00é'
    reached = healthy("full")
    reached.edges[0] = (0, 1, Submit("E", name))
    write(tmp_path / "g.graphml", reached)
    graph = read(tmp_path / "g.graphml")
    assert {d["event"] for *_, d in graph.out_edges(0, data=True)} >= {
        f"Submit(E, {name})".replace("\x00", "\ufffd")
    }
    [line] = [x for x in dot(graph_of(reached)).splitlines() if x.startswith("  0 -> 1 ")]
    assert r'[label="Submit(E, r\"<&>\n' in line


def test_the_same_search_gives_the_same_text() -> None:
    one, two = graph_of(healthy("full")), graph_of(healthy("full"))
    assert dot(one) == dot(two)
    assert graphml(one) == graphml(two)
