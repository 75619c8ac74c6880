"""Small graphs drawn: all that is there can be read, and what is too large is refused early."""

import itertools
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli import explore
from kvproof.cli.main import main
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.errors import UsageError
from kvproof.model.events import EVENTS, Submit
from kvproof.model.faults.fault import rules_with
from kvproof.model.faults.registry import FAULTS
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference.default_rules import REFERENCE
from kvproof.reports import graph_file
from kvproof.reports.graph import Graph, graph_of
from kvproof.reports.graph_file import PICTURE_STATES_MAX, check_size, write
from kvproof.reports.places import places, spaced
from kvproof.strategies.explorer.exhaustive import Explored, search
from kvproof.strategies.explorer.search_graph import SearchGraph

pytest.importorskip("matplotlib")
from kvproof.reports import picture

pytestmark = pytest.mark.exhaustive

ALL = tuple(INVARIANTS.values())
SMALL = ["full", "state", "hybrid", "pd-losing"]
REFUSED = "may have 150 states, and the graph has more"


def healthy(name: str, states_max: int = 10_000) -> Explored:
    return search(CLUSTERS[name], ALL, states_max, REFERENCE)


def broken_by(name: str) -> Explored:
    fault = FAULTS[name]
    return search(CLUSTERS[fault.cluster], ALL, 10_000, rules_with([fault]))


def texts(drawn: str) -> list[str]:
    """The texts of a picture, in the order they are drawn."""
    found = ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(text.itertext()).strip() for text in found]


@pytest.mark.parametrize("name", SMALL)
def test_every_state_and_event_is_there(name: str) -> None:
    made = graph_of(healthy(name))
    written = texts(picture.svg(made))
    numbers = sorted(int(text) for text in written if text.isdigit())
    assert numbers == list(range(len(made.nodes)))
    for kind in EVENTS:
        named = [line for line in picture.lines(made) if kind in line.kinds]
        # Each line has its name, and the legend has it once.
        assert written.count(kind) == len(named) + bool(named)
    assert "initial state" in written
    assert "all requests ended" in written
    assert not any("violation" in text or "BROKEN" in text for text in written)


def test_where_there_are_many_states_the_colours_must_do() -> None:
    made = graph_of(healthy("pd", 100))
    assert len(made.nodes) > picture.NAMED_MAX
    written = texts(picture.svg(made))
    assert sum(text.isdigit() for text in written) == len(made.nodes)
    assert written.count("Schedule") == 1


def test_each_kind_has_a_colour_of_its_own() -> None:
    assert list(picture.COLOURS) == list(EVENTS)
    shown = [*picture.COLOURS.values(), picture.SEVERAL, picture.RED]
    assert len(set(shown)) == len(shown)


def test_the_way_to_the_violation_is_marked() -> None:
    reached = broken_by("double_free")
    made = graph_of(reached)
    red = [(line.origin, line.target) for line in picture.lines(made) if line.violating]
    assert len(red) == len(reached.events)
    [broken] = [number for number, node in enumerate(made.nodes) if node.broken]
    at = 0
    while at != broken:
        [at] = [target for origin, target in red if origin == at]
    drawn = picture.svg(made)
    assert drawn.count(f"stroke: {picture.RED}; stroke-width: 7") == len(red) + 1
    assert {"violation", "path to the violation"} < set(texts(drawn))
    assert any(text.endswith("; BROKEN: pool_adds_up") for text in texts(drawn))
    assert picture.RED not in picture.svg(graph_of(healthy("full")))


def test_events_between_the_same_states_are_joined() -> None:
    reached = healthy("full")
    origin, target, event = reached.edges[0]
    assert isinstance(event, Submit)
    reached.edges.append((origin, target, Submit("E", "again")))
    made = graph_of(reached)
    assert len(picture.lines(made)) == len(made.edges) - 1
    assert "several kinds" not in texts(picture.svg(made))
    reached.edges.append((origin, target, EVENTS["Abort"]("E", "r0")))
    made = graph_of(reached)
    [line] = [x for x in picture.lines(made) if (x.origin, x.target) == (origin, target)]
    assert line.kinds == ("Abort", "Submit")
    assert line.colour == picture.SEVERAL
    assert "several kinds" in texts(picture.svg(made))


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        ([], []),
        ([2.0], [2.0]),
        ([0.0, 5.0], [0.0, 5.0]),
        ([1.0, 1.0, 1.0], [0.0, 1.0, 2.0]),
        ([0.0, 0.5, 9.0], [-0.25, 0.75, 9.0]),
        ([0.0, 1.0, 1.0, 1.0], [-0.75, 0.25, 1.25, 2.25]),
    ],
)
def test_heights_are_apart_and_near_to_the_wanted(wanted: list[float], given: list[float]) -> None:
    assert spaced(wanted) == pytest.approx(given)


@pytest.mark.parametrize("name", [*SMALL, "pd", "pd-default"])
def test_states_stand_in_columns_and_apart(name: str) -> None:
    made = graph_of(healthy(name, 140))
    at = places(made)
    assert [depth for depth, _ in at] == [node.depth for node in made.nodes]
    for (depth, one), (other, two) in itertools.combinations(at, 2):
        assert depth != other or abs(one - two) > 0.999


def crossings(made: Graph, at: list[tuple[int, float]]) -> int:
    """Pairs of lines between the same two columns that cross."""
    ways = [(at[line.origin], at[line.target]) for line in picture.lines(made)]
    ways = [(one, two) for one, two in ways if two[0] == one[0] + 1]
    return sum(
        a[0] == c[0] and (a[1] - c[1]) * (b[1] - d[1]) < 0
        for (a, b), (c, d) in itertools.combinations(ways, 2)
    )


@pytest.mark.parametrize(
    ("name", "most"), [("full", 0), ("hybrid", 0), ("pd-losing", 0), ("pd", 2)]
)
def test_few_lines_cross(name: str, most: int) -> None:
    made = graph_of(healthy(name, 140))
    assert crossings(made, places(made)) <= most
    if most:
        as_they_come = [(node.depth, float(number)) for number, node in enumerate(made.nodes)]
        assert crossings(made, as_they_come) > 5 * most


@pytest.mark.parametrize("name", SMALL)
def test_no_text_covers_another(name: str) -> None:
    figure = picture.figure(graph_of(healthy(name)))
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for axes in figure.axes for text in axes.texts]
    assert len(boxes) > 50 or name == "pd-losing"
    covered = sum(one.overlaps(two) for one, two in itertools.combinations(boxes, 2))
    assert covered == 0


def test_the_same_graph_gives_the_same_file(tmp_path: Path) -> None:
    script = (
        "import sys; from kvproof.cli.main import main;"
        "sys.exit(main(['explore', '--config', 'pd-losing', '--graph', sys.argv[1]]))"
    )
    for kind in ("svg", "png"):
        written = []
        for seed in ("1", "2"):
            path = tmp_path / f"{seed}.{kind}"
            environment = {**os.environ, "PYTHONHASHSEED": seed}
            done = subprocess.run(
                [sys.executable, "-c", script, path], env=environment, capture_output=True
            )
            assert done.returncode == 0, done.stderr
            written.append(path.read_bytes())
        assert written[0] == written[1]
    assert not re.search(r"<dc:date>|\d{4}-\d\d-\d\d", (tmp_path / "1.svg").read_text("utf-8"))


def test_a_png_is_written(tmp_path: Path) -> None:
    write(tmp_path / "g.png", healthy("full"))
    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_too_many_states_are_refused(tmp_path: Path) -> None:
    for name in ("g.svg", "g.png"):
        check_size(tmp_path / name, PICTURE_STATES_MAX)
        with pytest.raises(UsageError, match=REFUSED) as refused:
            write(tmp_path / name, healthy("pd"))
        assert "Use a smaller --config, or a name that ends in .graphml or .dot." in str(
            refused.value
        )
        assert not (tmp_path / name).exists()
    check_size(tmp_path / "g.dot", 10**6)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """Runs explore in an empty folder; gives the exit code, and what it printed."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["explore", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_explore_draws(run: Any) -> None:
    code, out, _ = run("--config", "full", "--graph", "g.svg")
    assert (code, out[:9]) == (0, "EXHAUSTED")
    assert "initial state" in texts(Path("g.svg").read_text("utf-8"))
    code, _, err = run("--config", "full", "--graph", "g.svg")
    assert code == 2
    assert "exists and is not overwritten" in err
    code, out, _ = run("--fault", "double_free", "--graph", "broken.png")
    assert code == 1
    assert Path("broken.png").stat().st_size > 10_000


def test_a_search_that_is_cut_is_drawn_as_far_as_it_went(run: Any) -> None:
    code, _, _ = run("--config", "pd", "--states-max", "40", "--graph", "g.svg")
    assert code == 3
    assert Path("g.svg").exists()


def test_the_states_that_symmetry_leaves_are_counted(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves = []

    def explored(*_scope: Any, **options: Any) -> Any:
        leaves.append(options["symmetric"])
        return None, SearchGraph(CLUSTERS["full"])

    monkeypatch.setattr(explore, "explored", explored)
    monkeypatch.setattr(explore, "exhausted", lambda *_: sys.exit(7))
    for more in ([], ["--symmetry"]):
        with pytest.raises(SystemExit, match="7"):
            run("--config", "full", "--graph", "g.svg", *more)
    assert leaves == [False, True]


def test_what_is_too_large_is_refused_before_the_search(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explore, "exhausted", lambda *_: pytest.fail("it searched"))
    code, out, err = run("--config", "pd", "--graph", "g.svg")
    assert (code, out) == (2, "")
    assert REFUSED in err
    assert not list(Path().iterdir())


def test_without_matplotlib_it_is_refused_before_the_search(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr(explore, "explored", lambda *_: pytest.fail("it searched"))
    code, out, err = run("--config", "full", "--graph", "g.svg")
    assert (code, out) == (2, "")
    assert "needs matplotlib" in err


def test_the_answer_is_given_though_drawing_fails(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_graph: Graph) -> str:
        raise UsageError("No. Use another.")

    monkeypatch.setitem(graph_file.FORMATS, ".svg", fails)
    code, out, err = run("--fault", "double_free", "--graph", "g.svg")
    assert (code, err) == (1, "No. Use another.\n")
    assert "VIOLATED" in out
    assert len(list(Path("kvproof-traces").iterdir())) == 1
    assert not Path("g.svg").exists()
