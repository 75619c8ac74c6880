"""A trace file that is broken is refused in two sentences that name the line."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli.main import main
from kvproof.model.traces import trace_reader


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines of a good trace."""
    folder = tmp_path_factory.mktemp("good")
    main(["explore", "--fault", "front_trim", "--traces", str(folder)])
    (path,) = folder.iterdir()
    return path.read_text().splitlines(keepends=True)


def bad_trace(refused: Any, text: str) -> str:
    """What `replay` and `report` say to a trace file of this text."""
    Path("bad.jsonl").write_text(text)
    said = refused("replay", "bad.jsonl")
    assert refused("report", "bad.jsonl") == said
    assert isinstance(said, str)
    return said


def test_trace_cut_after_any_line(refused: Any, lines: list[str]) -> None:
    for count in range(len(lines)):
        said = bad_trace(refused, "".join(lines[:count]))
        assert f"Line {max(1, count + (count > 0))} of bad.jsonl" in said
        assert "cut off" in said
        assert ("the file is empty" in said) == (count == 0)


def edited(lines: list[str], number: int, **fields: Any) -> str:
    """The trace with fields of one line (from 1) changed; None takes a field out."""
    record = {**json.loads(lines[number - 1]), **fields}
    record = {name: value for name, value in record.items() if value is not None}
    return "".join([*lines[: number - 1], json.dumps(record) + "\n", *lines[number:]])


REASON = {"kind": "a", "says": "{b} is so", "facts": {"n": [1, [2, "c"], None]}}
NESTED = REASON | {"facts": {"n": {"kind": 1}}}
Q = "no engine named 'Q'"


@pytest.mark.parametrize(
    ("number", "fields", "says"),
    [
        (1, {"schema": 6}, "newer than the 5"),
        (
            1,
            {"schema": 4, "kind": "kvproof-trace"},
            "schema 4, older than the 5 this kvproof reads. Use ",
        ),
        (1, {"kind": "something"}, "does not say kind"),
        (1, {"config": None}, "missing required field `config`"),
        (1, {"comment": "mine"}, "unknown field `comment`"),
        (2, {"step": 3}, "is step 3 where step 1 belongs"),
        (2, {"event": {"type": "Sumbit", "engine": "P", "request": "r0"}}, "Sumbit"),
        (2, {"event": {"type": "Schedule", "engine": "P"}}, "without what it chose"),
        (2, {"event": {"type": "Submit", "engine": "Q", "request": "r0"}}, Q),
        (2, {"event": {"type": "Complete", "engine": "P", "failed": "x"}}, "request named 'x'"),
        (2, {"event": {"type": "Evict", "engine": "P", "block": 99}}, "P has no block 99"),
        (2, {"event": {"type": "Complete", "engine": "P", "accepted": {"x": 1}}}, "named 'x'"),
        (2, {"event": None}, "has no field event, finding or end"),
        (2, {"removed": None}, "only one of the fields changed and removed"),
        (3, {"changed": None, "removed": None}, "unlike the lines before it"),
        (-1, {"finding": {"invariant": "x", "reasons": ["a sentence"]}}, "$.finding.reasons[0]"),
        (-1, {"finding": {"invariant": "x", "reasons": [NESTED]}}, "facts[...].k"),
        (-1, {"finding": {"invariant": "x", "reasons": [REASON], "about": {"engine": "Q"}}}, Q),
    ],
)
def test_broken_trace(
    refused: Any, lines: list[str], number: int, fields: dict[str, Any], says: str
) -> None:
    """The finding is in the last line but one."""
    number = number if number > 0 else len(lines) + number
    said = bad_trace(refused, edited(lines, number, **fields))
    assert f"Line {number} of bad.jsonl" in said
    assert says in said


def test_broken_ends_of_a_trace(refused: Any, lines: list[str]) -> None:
    text, last = "".join(lines), len(lines)
    assert "counts 99 steps" in bad_trace(refused, edited(lines, last, end={"steps": 99}))
    assert "follows the end record" in bad_trace(refused, text + text)
    assert "no event before it" in bad_trace(refused, "".join([lines[0], *lines[-2:]]))


REQUEST = "/engines/P/requests/r0"


@pytest.mark.parametrize(
    ("changed", "removed", "says"),
    [
        ({"nonsense": 1}, [], "give no state"),
        ({"/engines/P/blocks/99/refs": 1}, [], "No state has /engines/P/blocks/"),
        ({"/engines/P/blocks/1/refs/x": 1}, [], "give no state"),
        ({"/transfers": {}}, [], "No state has /transfers"),
        ({"/transfers/r0 ": 1}, [], "give no state"),
        ({REQUEST + "/tables": 3}, [], "`array`, got `int`"),
        ({"/engines/P/free": ["1"]}, [], "$[0]"),
        ({"/engines/P/memory/1": 0}, [], "give no state"),
        ({"/engines/P/memory/1": None, "/engines/P/memory/1/group": 0}, [], "give no state"),
        ({"/engines/P/requests/r1/id": "r1"}, [], "give no state"),
        ({"/engines/P/requests/r0/id": "r1"}, [], "No state has /engines/P/requests/r0/"),
        ({"/engines/P/requests/r0/computed": True}, [], "got `bool`"),
        ({"/transfers/r0/phase": "gone"}, [], "'gone'"),
        ({}, ["/engines/P/cached"], "No state has /engines/P/cached"),
    ],
)
def test_changes_that_give_no_state(
    refused: Any, lines: list[str], changed: dict[str, Any], removed: list[str], says: str
) -> None:
    """The first event submits r0 to P."""
    added = {**json.loads(lines[1])["changed"], **changed}
    said = bad_trace(refused, edited(lines, 2, changed=added, removed=removed))
    assert said.startswith("Line 2 of bad.jsonl: ")
    assert says in said


def test_a_trace_has_a_largest_size(
    refused: Any, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(trace_reader, "EVENTS_MAX", 2)
        said = bad_trace(refused, "".join(lines))
        assert said == "Line 4 of bad.jsonl has event 3. Use a run of at most 2 events.\n"
    with monkeypatch.context() as patch:
        patch.setattr(trace_reader, "SIZE_MAX_MIB", 0)
        assert "is larger than 0 MiB" in bad_trace(refused, "".join(lines))


def test_trace_with_names_nobody_knows(refused: Any, lines: list[str]) -> None:
    trace = edited(lines, 1, faults=["front_trimm"])
    Path("bad.jsonl").write_text(trace)
    assert "Use front_trim instead" in refused("replay", "bad.jsonl")
    finding = {"invariant": "pool_add_up", "reasons": [REASON, REASON]}
    Path("bad.jsonl").write_text(edited(lines, len(lines) - 1, finding=finding))
    assert "Use pool_adds_up instead" in refused("replay", "bad.jsonl")
