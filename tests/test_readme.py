"""What the README shows and counts is so."""

import re
from pathlib import Path

import pytest

from kvproof.cli.main import main, parser
from kvproof.live.deviations.registry import KNOWN
from kvproof.model.traces.trace_reader import read
from kvproof.strategies.remedies import table
from kvproof.strategies.symbolic.induction import claimed
from kvproof.strategies.symbolic.registry import OBLIGATIONS

ROOT = Path(__file__).parent.parent
FINDINGS = sorted(f"findings/{p.parent.name}" for p in ROOT.glob("findings/*/README.md"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = sorted(
    set(re.findall(r"^ {4}(?:\$ )?(kvproof [^#\n]+?) *(?:#.*)?$", README, re.MULTILINE))
)


def test_the_counterexample_is_the_one_that_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = README.split("$ kvproof explore --fault truncation_without_guard\n")[1]
    lines = [line[4:] for line in shown.split("\nThe explorer's")[0].splitlines()]
    assert main(["explore", "--fault", "truncation_without_guard"]) == 1
    printed = capsys.readouterr().out
    for part in "\n".join(lines).split("\n...\n"):
        assert part.strip("\n. ") in printed
    assert len(lines) > 12


def test_counts_of_proofs() -> None:
    assert f"{len(OBLIGATIONS)} obligations and {len(claimed())} claims" in README
    assert f"{len(OBLIGATIONS)} obligations of arithmetic, and {len(claimed())} claims" in README


def test_the_table_of_remedies_is_what_is_measured() -> None:
    for remedy in table():
        assert f"| {' | '.join(map(str, remedy))} |" in README


def test_the_listed_findings_break_what_is_said() -> None:
    listed = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", README, re.MULTILINE)
    kept = {path.parent.name: path for path in (ROOT / "findings").glob("*/trace.jsonl")}
    assert {name for name, _ in listed} <= set(kept) == set(KNOWN)
    for name, invariant in listed:
        finding = read(kept[name]).finding
        assert finding is not None
        assert finding.invariant == invariant
        assert invariant in {signature.check for signature in KNOWN[name].signatures}


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_are_understood(command: str) -> None:
    assert parser().parse_args(command.split()[1:]).command == command.split()[1]


ROOMS = [".", "model", "live", "invariants", "gate", "findings"]


@pytest.mark.parametrize("folder", [*ROOMS, *FINDINGS])
def test_links_lead_somewhere(folder: str) -> None:
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert link.startswith("https://") or (ROOT / folder / link).exists(), link


@pytest.mark.parametrize("room", ["model", "live"])
def test_each_file_that_a_room_tells_of_is_there(room: str) -> None:
    text = (ROOT / room / "README.md").read_text(encoding="utf-8")
    rows = [line.split("|")[2] for line in text.splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`([\w/]+)`", row)}
    assert len(named) > 10
    for name in named:
        assert (ROOT / room / name).is_dir() or (ROOT / room / f"{name}.py").is_file(), name
