"""The two forms of the heat map over releases, a table and JSON, tell the same: of a run of the
command with made-up surveys, and in the committed files."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvproof.cli.main import main
from kvproof.cli.release_surveys import SURVEYED, Surveys
from kvproof.model.faults.registry import FAULTS
from kvproof.reports import heat_table
from kvproof.reports.heat_map import SurveyedRelease
from kvproof.reports.stories import STORIES
from kvproof.strategies.verdict import Verdict
from tests.test_releases import broken, good

REPORTS = Path(__file__).parent.parent / "reports"


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
def surveyed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The command with made-up surveys: the first release shows a fault, the second nothing, and of
    the third nothing is known."""
    fault = "front_trim"
    shown = {"shown": True, "broken": [broken(FAULTS[fault].breaks[0])]}
    bad = [r | shown if r["fault"] == fault else r for r in good()]
    records = {"0.18.0": bad, "0.19.0": good()}

    def survey(_surveys: Surveys, version: str, *_: int) -> SurveyedRelease:
        found = records.get(version)
        return (
            SurveyedRelease(version, tuple(found))
            if found
            else SurveyedRelease(version, reason="no")
        )

    monkeypatch.setattr(Surveys, "survey", survey)
    return ["releases", "--cache", str(tmp_path), "--releases", "0.18.0", "0.19.0", "0.20.2"]


def test_the_table_and_the_json_of_a_run_agree(
    surveyed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(surveyed) == Verdict.UNKNOWN.exit_code
    text = capsys.readouterr().out
    assert main([*surveyed, "--json"]) == Verdict.UNKNOWN.exit_code
    said = json.loads(capsys.readouterr().out)
    check_agreement(text, said)
    row = next(row for row in said["faults"] if row["name"] == "front_trim")
    assert [cell["verdict"] for cell in row["releases"].values()] == [
        *("VIOLATED", "SAMPLED", "UNKNOWN")
    ]
    assert (row["first_bad"], row["first_good"]) == ("0.18.0", "0.19.0")


def test_the_committed_files_are_of_one_run_and_of_the_commands_form(
    surveyed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    kept = json.loads((REPORTS / "releases.json").read_text(encoding="utf-8"))
    text = (REPORTS / "releases.md").read_text(encoding="utf-8")
    assert kept["releases"] == list(SURVEYED)
    assert kept["exit_code"] in (0, 3)
    assert {row["name"] for row in kept["stories"]} == set(STORIES)
    check_agreement(text, kept)
    main(surveyed)
    printed = capsys.readouterr().out
    assert [x for x in printed.splitlines() if x.startswith("#")] == [
        x for x in text.splitlines() if x.startswith("#")
    ]
    main([*surveyed, "--json"])
    assert set(json.loads(capsys.readouterr().out)) == set(kept)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_map_fits_a_terminal(
    surveyed: list[str],
    width: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(surveyed) == Verdict.UNKNOWN.exit_code
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    assert ("| front_trim" in text.replace("`", "")) == (width == 120)
    assert "bad from 0.18.0 or earlier, good from 0.19.0" in " ".join(text.split())
