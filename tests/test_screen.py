"""What a terminal shows fits it, breaks between words, and takes every name literally."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproof.model.files.reading import printable
from kvproof.reports import screen

ROOT = Path(__file__).parent.parent
Run = Callable[..., tuple[int, str, str]]

HOSTILE = {
    "cluster": "[/red][bold] :smile:",
    "engine": "E[0]\\",
    "job": "r[link=x]:skull:",
}
"""Names that are markup, codes of emoji, or escapes elsewhere."""


def hostile(folder: Path) -> str:
    """A file with a cluster of hostile names."""
    preset = ROOT / "model" / "presets" / "clusters" / "full.json"
    text = preset.read_text(encoding="utf-8")
    cluster = json.loads(text)
    cluster = cluster.get("cluster", cluster)
    for key in ("about", "distinct_states"):
        cluster.pop(key, None)
    cluster["name"] = HOSTILE["cluster"]
    cluster["engines"][0]["name"] = HOSTILE["engine"]
    for job in cluster["jobs"]:
        job["name"] += HOSTILE["job"]
    path = folder / "hostile.json"
    path.write_text(json.dumps(cluster), encoding="utf-8")
    return str(path)


def said(text: str) -> str:
    """The words of an output, whatever lines it has."""
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("columns", "width"),
    [
        *[("20", 20), ("200", 200), ("1", 20), ("999999", 1000)],
        *[(text, 80) for text in ("0", "abc", "-5", "", "9" * 5000, "²", "80.5", " ")],
    ],
)
def test_the_width_is_that_of_columns_or_80(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", columns)
    assert screen.columns() == width
    assert screen.console(io.StringIO()).width == width


@pytest.mark.parametrize("width", ["", "40"])
def test_a_name_is_never_markup(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    file = hostile(tmp_path)
    code, out, err = run("explore", "--config", file, "--fault", "double_free")
    assert (code, err) == (1, "")
    assert all(name in said(out) for name in HOSTILE.values())
    (trace,) = map(str, Path("kvproof-traces").glob("*.jsonl"))
    for command, ends in (("report", 0), ("replay", 1)):
        code, shown, err = run(command, trace)
        assert (code, err) == (ends, "")
        assert HOSTILE["engine"] in said(shown)
    code, out, err = run("sample", "--config", file, "--examples", "2", "--steps", "3")
    assert (code, err) == (0, "")
    assert HOSTILE["cluster"] in said(out)


@pytest.mark.parametrize("argv", [("explore", "--config", "ful"), ("replay", "missing.jsonl")])
def test_an_error_has_the_width_that_is_asked_for(
    run: Run, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    code, _, err = run(*argv)
    assert code == 2
    assert len(err.splitlines()) > 1
    assert max(map(len, err.splitlines())) <= 60


WORDS = st.lists(st.text("ab漢-", min_size=1, max_size=12), min_size=1, max_size=12)


@given(WORDS, st.integers(0, 6), st.integers(8, 40), st.integers(0, 12))
def test_lines_break_between_words_only(
    words: list[str], indent: int, width: int, hang: int
) -> None:
    text = " " * indent + " ".join(words)
    lines = screen.folded(text, width, hang)
    assert " ".join(lines).split() == words
    assert lines[0].startswith(" " * indent + words[0])
    for line in lines:
        assert len(line) <= width or len(line.split()) == 1
        assert line == line.rstrip()
    for line in lines[1:]:
        assert len(line) - len(line.lstrip()) == min(hang, width // 2)


@given(st.text("ab[漢\x1b\n", max_size=30), st.integers(1, 20))
def test_one_line_is_cut_to_its_width(text: str, width: int) -> None:
    line = screen.one_line(text, width)
    assert len(line) <= width
    assert line.isprintable()
    assert line == printable(text) or line.endswith("…")
