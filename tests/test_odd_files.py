"""Files that somebody changed: a command ends with an exit code of its own, never with a traceback;
what the published schema does not allow is refused in two sentences; an output is one object of its
schema. Hypothesis makes the changes, and shrinks what goes wrong to a smallest file.
"""

import contextlib
import copy
import io
import json
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproof.cli.main import main
from kvproof.reports.document import VERSION
from tests.sentences import two_sentences

jsonschema = pytest.importorskip("jsonschema")

ROOT = Path(__file__).parent.parent
PRESETS = [
    ROOT / "model" / "presets" / "clusters" / f"{name}.json"
    for name in ("full", "hybrid", "state", "partial-tight", "pd-stray", "push-failing", "unequal")
]
TRACES = [
    ROOT / "tests" / "testdata" / "vllm_0.32.0_mamba_counter.jsonl",
    ROOT / "findings" / "impossible_fit_waits" / "trace.jsonl",
    ROOT / "findings" / "held_is_loaded_again" / "trace.jsonl",
]
RECORDS = [*(ROOT / "tests" / "testdata").glob("record*.jsonl")]

EXAMPLES = settings(max_examples=3 * settings.default.max_examples)

ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from((-1, 0, 2, 255, 2**63, 10**400, 1.0, 1.5, 1e308, float("nan"))),
    st.sampled_from(
        ("", "x" * 5000, "[/red]", "a\nb", "\x1b[31m", "\x00", "\ud800", "a/b", "%s{0}")
    ),
    st.text(max_size=8),
    st.sampled_from(([], {}, [[]], [None], {"name": "E"}, {"": 1})),
)
"""Values that programs get wrong: other types, limits, markup, control characters, surrogates."""


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in plain data."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, key))


@st.composite
def changed(draw: st.DrawFn, data: Any) -> Any:
    """Plain data with one to three changes: another value, or one that is removed or repeated."""
    made = copy.deepcopy(data)
    for _ in range(draw(st.integers(1, 3))):
        found = sorted(places(made), key=str)
        if not found:
            break
        *path, key = draw(st.sampled_from(found))
        inner = made
        for step in path:
            inner = inner[step]
        match draw(st.sampled_from(("other", "other", "removed", "more"))):
            case "removed":
                del inner[key]
            case "more" if isinstance(inner, list):
                inner.insert(key, copy.deepcopy(inner[key]))
            case "more":
                inner[f"{key}s"] = copy.deepcopy(draw(ODD))
            case _:
                inner[key] = copy.deepcopy(draw(ODD))
    return made


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes with one place where some are cut, repeated, or others."""
    at = draw(st.integers(0, len(data)))
    to = min(len(data), at + draw(st.sampled_from((0, 1, 8, 64, len(data)))))
    return data[:at] + draw(st.binary(max_size=8) | st.just(data[at:to] * 2)) + data[to:]


@st.composite
def cluster_file(draw: st.DrawFn) -> bytes:
    """A cluster file with changed values or bytes."""
    good = draw(st.sampled_from(PRESETS)).read_bytes()
    return draw(damaged(good) | changed(json.loads(good)).map(dumped))


@st.composite
def lines_file(draw: st.DrawFn, paths: list[Path]) -> bytes:
    """A file of JSON Lines with changed values in a line, or with lines or bytes changed."""
    good = draw(st.sampled_from(paths)).read_bytes()
    lines = good.splitlines(keepends=True)
    at = draw(st.sampled_from((0, len(lines) - 1, *range(len(lines)))))
    match draw(st.sampled_from(("values", "values", "bytes", "lines"))):
        case "values":
            lines[at] = dumped(draw(changed(json.loads(lines[at])))) + b"\n"
        case "lines":
            other = draw(st.sampled_from((b"", b"\n", b"null\n", lines[at] * 2, lines[-1])))
            lines[at] = other
        case _:
            return draw(damaged(good))
    return b"".join(lines)


def dumped(data: Any) -> bytes:
    return json.dumps(data).encode()


@cache
def schema(name: str) -> Any:
    text = (ROOT / "docs" / "schemas" / f"{name}.json").read_text(encoding="utf-8")
    return jsonschema.validators.validator_for(json.loads(text))(json.loads(text))


def allowed(name: str, data: bytes) -> bool:
    """Whether a published schema allows each line, decided without kvproof's own decoder."""
    try:
        values = [json.loads(line) for line in (data.splitlines() if name != "cluster" else [data])]
    except ValueError:
        return False
    return all(schema(name).is_valid(value) for value in values)


def ends(data: bytes, *argv: str) -> int:
    """The exit code of a command that reads this file, after a look at what it printed."""
    out, err = io.StringIO(), io.StringIO()
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            Path("file").write_bytes(data)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(argv)
        finally:
            os.chdir(before)
    assert code in (0, 1, 2, 3)
    if code == 2:
        assert not out.getvalue()
        assert two_sentences(err.getvalue()), err.getvalue()
    else:
        printed = json.loads(out.getvalue())
        assert printed["exit_code"] == code
        assert (printed["version"], printed["command"]) == (VERSION, argv[0])
    assert not {*map(chr, range(32))} - {"\n", "\t"} & {*out.getvalue(), *err.getvalue()}
    return code


@EXAMPLES
@given(cluster_file())
def test_a_changed_cluster(data: bytes) -> None:
    code = ends(data, "explore", "--config", "./file", "--states-max", "40", "--json")
    assert code == 2 or allowed("cluster", data)


@EXAMPLES
@given(lines_file(TRACES))
def test_a_changed_trace(data: bytes) -> None:
    code = ends(data, "replay", "./file", "--machine", "model", "--json")
    assert code == 2 or allowed("trace", data)


@EXAMPLES
@given(lines_file(RECORDS))
def test_a_changed_record(data: bytes) -> None:
    code = ends(data, "report", "./file", "--json")
    assert code == 2 or allowed("record", data)
