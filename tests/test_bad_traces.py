"""A trace file that is broken is refused in two sentences that name the line."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli.main import main


@pytest.fixture
def lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of a good trace."""
    main(["explore", "--fault", "front_trim", "--traces", str(tmp_path / "good")])
    capsys.readouterr()
    (path,) = (tmp_path / "good").iterdir()
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


def test_trace_cut_within_a_line(refused: Any, lines: list[str]) -> None:
    text = "".join(lines)
    assert "Line 1 of" in bad_trace(refused, text[:20])
    for end in (len(text) - 1, len(text) - 5, len(text) // 2):
        assert "cut off" in bad_trace(refused, text[:end])


def edited(lines: list[str], number: int, **fields: Any) -> str:
    """The trace with fields of one line (from 1) changed; None takes a field out."""
    record = {**json.loads(lines[number - 1]), **fields}
    record = {name: value for name, value in record.items() if value is not None}
    return "".join([*lines[: number - 1], json.dumps(record) + "\n", *lines[number:]])


@pytest.mark.parametrize(
    ("number", "fields", "says"),
    [
        (1, {"schema": 4}, "newer than the 3"),
        (1, {"schema": 0}, "does not exist"),
        (1, {"schema": True}, "no usable field schema"),
        (1, {"kind": "something"}, "does not say kind"),
        (1, {"config": None}, "no usable field config"),
        (1, {"config": {"engines": []}}, "none, or two have the same name"),
        (1, {"faults": "front_trim"}, "no usable field faults"),
        (1, {"faults": [3]}, "not a list of texts"),
        (1, {"seed": "0"}, "no usable field seed"),
        (1, {"versions": None}, "no usable field versions"),
        (2, {"step": 3}, "is step 3 where step 1 belongs"),
        (2, {"event": {"type": "Sumbit", "engine": "P", "request": "r0"}}, "Submit"),
        (2, {"event": {"type": "Submit", "engine": "P"}}, "fields"),
        (2, {"event": {"type": "Submit", "engine": 3, "request": "r0"}}, "Use a name"),
        (2, {"event": {"type": "Schedule", "engine": "P"}}, "Use a list"),
        (2, {"event": 3}, "not an event"),
        (2, {"event": None}, "no usable field end"),
        (2, {"removed": None}, "no usable field removed"),
        (2, {"changed": [1]}, "no usable field changed"),
        (2, {"changed": None}, "only some events"),
    ],
)
def test_broken_trace(
    refused: Any, lines: list[str], number: int, fields: dict[str, Any], says: str
) -> None:
    said = bad_trace(refused, edited(lines, number, **fields))
    where = len(lines) if says == "only some events" else number
    assert f"Line {where} of bad.jsonl" in said
    assert says in said


def test_broken_ends_of_a_trace(refused: Any, lines: list[str]) -> None:
    text, last = "".join(lines), len(lines)
    assert "no usable field reasons" in bad_trace(
        refused, edited(lines, last - 1, finding={"invariant": "pool_adds_up"})
    )
    assert "counts 99 steps" in bad_trace(refused, edited(lines, last, end={"steps": 99}))
    assert "follows the end record" in bad_trace(refused, text + text)
    assert "is not JSON" in bad_trace(refused, lines[0] + "{]\n" + "".join(lines[1:]))
    assert "not a JSON object" in bad_trace(refused, lines[0] + "[]\n" + "".join(lines[1:]))
    assert "no event before it" in bad_trace(refused, "".join([lines[0], *lines[-2:]]))


@pytest.mark.parametrize(
    "changed",
    [
        {"nonsense": 1},
        {"/engines": 1},
        {"/engines/P/blocks/one/refs": 1},
        {"/engines/P/requests/r0/tables": 3},
        {"/engines/Q/free": []},
        {"/transfers": {}},
    ],
)
def test_changes_that_are_no_states(
    refused: Any, lines: list[str], changed: dict[str, Any]
) -> None:
    Path("bad.jsonl").write_text(edited(lines, len(lines) - 2, changed=changed, removed=[]))
    assert "cannot be combined" in refused("report", "bad.jsonl")
    assert main(["replay", "bad.jsonl"]) == 1


def test_trace_that_is_not_text(refused: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in refused("replay", "bad.jsonl")


def test_trace_with_names_nobody_knows(refused: Any, lines: list[str]) -> None:
    trace = edited(lines, 1, faults=["front_trimm"])
    Path("bad.jsonl").write_text(trace)
    assert "Use front_trim instead" in refused("replay", "bad.jsonl")
    Path("bad.jsonl").write_text("".join(lines).replace('"engine": "P"', '"engine": "Q"'))
    assert "no engine named 'Q'" in refused("replay", "bad.jsonl")
    finding = {"invariant": "pool_add_up", "reasons": ["a", "b"]}
    Path("bad.jsonl").write_text(edited(lines, len(lines) - 1, finding=finding))
    assert "Use pool_adds_up instead" in refused("replay", "bad.jsonl")
