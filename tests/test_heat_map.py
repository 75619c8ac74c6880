"""The two forms of the heat map over releases, a table and JSON, tell the same of a run of
the script with made-up surveys."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.releases import __main__ as command
from benchmarks.releases import table as heat_table
from benchmarks.releases.rows import SurveyedRelease
from benchmarks.releases.surveys import Surveys
from kvproof.model.faults.registry import FAULTS
from tests.test_releases import broken, good


def check_agreement(text: str, said: dict[str, Any]) -> None:
    """Assert that a table and a JSON object tell the same of every story, invariant and fault."""
    marks = {v.value: mark for v, mark in heat_table.MARKS.items()}
    rows = (*said["stories"], *said["invariants"], *said["faults"])
    for row in rows:
        line = next(x for x in text.splitlines() if x.startswith(f"| `{row['name']}`"))
        cells = [cell.strip() for cell in line.split("|")[2:-2]]
        assert cells == [marks[row["releases"][v]["verdict"]] for v in said["releases"]]
        assert all(row["releases"][v]["why"] for v in said["releases"])
        assert line.count("bad from") == (row["first_bad"] is not None)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder with the files of a run with made-up surveys: the first release shows a fault, the
    second nothing, and of the third nothing is known."""
    fault = "front_trim"
    shown = {"shown": True, "broken": [broken(FAULTS[fault].breaks[0])]}
    bad = [r | shown if r["fault"] == fault else r for r in good()]
    records = {"0.18.0": bad, "0.19.0": good()}

    def survey(_surveys: Surveys, version: str, *_: int) -> SurveyedRelease:
        if version in records:
            return SurveyedRelease(version, tuple(records[version]))
        return SurveyedRelease(version, reason="no")

    monkeypatch.setattr(Surveys, "survey", survey)
    argv = ["--cache", str(tmp_path), "--out", str(tmp_path)]
    assert command.main([*argv, "--releases", "0.20.2", "0.19.0", "0.18.0"]) == 3
    return tmp_path


def test_the_table_and_the_json_of_a_run_agree(made: Path) -> None:
    said = json.loads((made / "releases.json").read_text(encoding="utf-8"))
    check_agreement((made / "releases.md").read_text(encoding="utf-8"), said)
    row = next(row for row in said["faults"] if row["name"] == "front_trim")
    assert [cell["verdict"] for cell in row["releases"].values()] == [
        *("VIOLATED", "SAMPLED", "UNKNOWN")
    ]
    assert (row["first_bad"], row["first_good"]) == ("0.18.0", "0.19.0")
