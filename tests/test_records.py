"""Records as files: what `report` shows, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvproof.model.records.record import Record, read, read_either, write_in
from kvproof.reports.record import show
from tests.conftest import TESTDATA
from tests.printed import printed
from tests.sentences import two_sentences

FILE = TESTDATA / "record.jsonl"
"""Real vLLM 0.32.0 with a mistake: a hit does not count its references."""


@pytest.fixture
def record() -> Record:
    return read(FILE)


def test_a_record_is_read_as_it_was_written(record: Record, tmp_path: Path) -> None:
    path = write_in(tmp_path / "new", "again", record)
    assert path.read_text() == FILE.read_text()
    assert read_either(path) == record
    assert {finding.invariant for finding in record.findings} == {
        "references_are_exact",
        "no_block_free_and_held",
        "predicted_is_taken",
        "pool_adds_up",
    }


def test_the_report_of_a_record(record: Record, golden: Callable[[str, str], None]) -> None:
    shown = printed(show, record)
    assert max(map(len, shown.splitlines())) <= 80
    golden("record.txt", shown)


LINES = FILE.read_text(encoding="utf-8").splitlines(keepends=True)


@pytest.mark.parametrize("count", range(len(LINES)))
def test_a_record_that_was_cut_off_is_refused(refused: Any, count: int) -> None:
    Path("bad.jsonl").write_text("".join(LINES[:count]))
    assert "cut off" in refused("report", "bad.jsonl")
    assert "cut off" in refused("report", "bad.jsonl", str(FILE))


@pytest.mark.parametrize(
    ("number", "fields", "says"),
    [
        (1, {"schema": 4}, "newer than the 3"),
        (1, {"schema": 2}, "older than the 3 this kvproof reads. Use KVPROOF=record to record"),
        (1, {"engine": None}, "missing required field `engine`"),
        (1, {"comment": "mine"}, "unknown field `comment`"),
        (2, {"step": 3}, "is step 3 where step 1 belongs"),
        (2, {"event": "scedule"}, "invalid enum value 'scedule'. Use schedule"),
        (2, {"tokens": {"r0": -1}}, "$.tokens"),
        (
            3,
            {"tables": [{"request": "r0", "group": 1, "at": 0, "blocks": []}]},
            "names group 1 of an engine with 1",
        ),
        (-2, {"state": {"requests": []}}, "missing required field `free_blocks`"),
        (-1, {"end": {"steps": 9}}, "counts 9 steps where the record has 6"),
    ],
)
def test_a_broken_record_is_refused(
    refused: Any, number: int, fields: dict[str, Any], says: str
) -> None:
    lines = list(LINES)
    index = number - 1 if number > 0 else number
    changed = {**json.loads(lines[index]), **fields}
    changed = {name: value for name, value in changed.items() if value is not None}
    lines[index] = json.dumps(changed) + "\n"
    Path("bad.jsonl").write_text("".join(lines))
    said = refused("report", "bad.jsonl")
    assert says in said
    assert two_sentences(said)


def test_a_trace_is_no_record(refused: Any) -> None:
    trace = str(TESTDATA.parent.parent / "findings" / "copied_before_filled" / "trace.jsonl")
    assert "does not say kind kvproof-record. Use a record file" in refused("report", trace, trace)


def test_a_record_is_not_replayed(refused: Any) -> None:
    assert "has no prompts to run again. Use kvproof report" in refused("replay", str(FILE))


def test_a_record_has_no_page(refused: Any) -> None:
    for files in ([str(FILE)], [str(FILE), str(FILE)]):
        assert "has no states" in refused("report", *files, "--html", "page.html")
