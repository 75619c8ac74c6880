"""What the README shows and counts is so."""

import re
from pathlib import Path

import pytest

from kvproof.cli.main import main, parser
from kvproof.live.known.registry import KNOWN
from kvproof.model.traces.trace_reader import read
from kvproof.proofs.induction import claimed
from kvproof.proofs.registry import OBLIGATIONS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


COMMANDS = sorted(
    set(re.findall(r"^ {4}(?:\$ )?(kvproof [^#\n]+?) *(?:#.*)?$", README, re.MULTILINE))
)


def test_the_counterexample_is_the_one_that_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = README.split("$ kvproof explore --fault front_trim\n")[1]
    lines = [line[4:] for line in shown.split("\nThe cluster")[0].splitlines()]
    assert main(["explore", "--fault", "front_trim"]) == 1
    printed = capsys.readouterr().out
    for part in "\n".join(lines).split("\n...\n"):
        assert part.strip("\n. ") in printed
    assert len(lines) > 9


def test_counts_of_pull_requests() -> None:
    """Those of the table in reports/."""
    table = page("reports/pull_requests.md")
    words = " ".join(README.split())
    found = re.search(
        r"(\d+) of (\d+) given fixes of the core when .* on (\d+) of (\d+) of connectors, .* "
        r"Of (\d+) harmless .* green on (\d+), and UNKNOWN on (\d+)",
        words,
    )
    assert found is not None
    rows = [line for line in table.splitlines() if line.startswith("| vllm#")]
    parts = table.split("\n## ")
    core, connectors, _, harmless = (
        [line for line in part.splitlines() if line.startswith("| vllm#")] for part in parts[1:5]
    )
    caught, beside = (sum("| caught |" in line for line in one) for one in (core, connectors))
    green, unknown = (
        sum(f"| {word} |" in line for line in harmless) for word in ("green", "unknown")
    )
    counts = caught, len(core), beside, len(connectors), len(harmless), green, unknown
    assert tuple(map(int, found.groups())) == counts
    assert green + unknown == len(harmless)
    assert len(rows) > len(core) + len(connectors) + len(harmless)
    assert "FALSE ALARM" not in table


def test_counts_of_findings() -> None:
    """Those of the table in findings/."""
    table = page("findings/README.md").split("\n## Deviations")[0]
    seen = [line.split(" | ")[3] for line in table.splitlines() if line.startswith("| [`")]
    real = sum("real engine" in where for where in seen)
    words = f"{real} of {len(seen)} findings were seen on real engines on CPU, {len(seen) - real}"
    assert words in " ".join(README.split())


def test_counts_of_reports() -> None:
    """Each page that is a report is in the table of reports once."""
    reports = page("findings/README.md").split("\n## Reports")[1].split("\n## ")[0]
    pages = {path.parent.name for path in (ROOT / "findings").glob("*/issue.md")}
    listed = [name for name in re.findall(r"`(\w+)`", reports) if name in pages]
    assert sorted(listed) == sorted(pages)
    [several] = [line for line in reports.splitlines() if "more, new" in line.split(" | ")[0]]
    assert reports.count("\n| new |") == 1
    new = 1 + sum(name in pages for name in re.findall(r"`(\w+)`", several))
    assert f"The {len(pages)} pages are {new} new reports" in reports
    assert f"They make {new} new reports" in " ".join(README.split())


def test_counts_of_planted_mistakes() -> None:
    """Those of the table in reports/, which the sanitizer's page has too."""
    table = page("reports/planted_mistakes.md").splitlines()
    mistakes = [line for line in table if line.startswith("| `")]
    found = sum("| not found" not in line for line in mistakes)
    assert f"Of [{len(mistakes)} such mistakes](reports/planted_mistakes.md) {found}" in README
    own = page("docs/sanitizer.md")
    assert f"[{len(mistakes)} mistakes](../reports/planted_mistakes.md)" in own
    assert f"{found} were found" in own


def test_counts_of_proofs() -> None:
    engines = page("docs/explanation/engines.md")
    assert f"{len(OBLIGATIONS)} obligations of arithmetic" in engines
    assert f"{len(claimed())} claims." in engines


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
