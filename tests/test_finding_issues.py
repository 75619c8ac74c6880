"""Each finding has a page that can be pasted into vLLM's bug-report form: its headings, the
releases of the table, and one diff that applies to vLLM 0.32.0."""

import re
from pathlib import Path

import pytest

from tests.finding_diffs import BLOCK, diff_of, files_of, patched
from tests.finding_releases import README, ROW
from tests.findings import ISSUES, NO_DEFECTS

NAMES = [path.parent.name for path in ISSUES]
HEADINGS = [
    "## Your current environment",
    "## Describe the bug",
    "### Who is affected",
    "### To reproduce",
    "### Expected",
    "### Actual",
    "### Root cause",
    "### Fix",
    "## On a real engine",
    "## Related issues",
    "## Found with kvproof",
]
TITLE_MAX = 110
"""Characters of a title, without the mark of the heading."""

SPAN = r"\d+\.\d+(?: to \d+\.\d+)?"
RELEASES = re.compile(rf"Releases: ({SPAN}(?:, (?:not )?{SPAN})*)")


def table(heading: str) -> dict[str, str]:
    """The names in a table of findings/README.md, and the releases in their rows."""
    section = README.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    rows = ROW.finditer(section.partition("\n## ")[0])
    return {row["name"]: row["fails"].strip() for row in rows}


def text(name: str) -> str:
    return (README.parent / name / "issue.md").read_text(encoding="utf-8")


def test_every_finding_has_a_page_in_its_form() -> None:
    assert sorted(table("Findings")) == NAMES
    others = [path.parent.name for path in NO_DEFECTS]
    assert sorted(table("Deviations that are no defects")) == others
    assert not set(NAMES) & set(others)


@pytest.mark.parametrize("path", NO_DEFECTS, ids=lambda path: path.parent.name)
def test_a_deviation_is_called_one_first(path: Path) -> None:
    first = path.read_text(encoding="utf-8").split("\n\n")[1]
    assert first.startswith("A deviation from what kvproof expects, and no defect to report: ")


@pytest.mark.parametrize("name", NAMES)
def test_its_headings_are_those_of_the_form(name: str) -> None:
    title, *headings = re.findall(r"^#.*$", BLOCK.sub("", text(name)), re.MULTILINE)
    assert title.startswith("# [Bug]: ")
    assert len(title.removeprefix("# ")) <= TITLE_MAX
    assert headings == HEADINGS


@pytest.mark.parametrize("name", NAMES)
def test_no_section_is_empty(name: str) -> None:
    parts = re.split(r"^#.*$", BLOCK.sub("diff", text(name)), flags=re.MULTILINE)
    assert parts[:2] == ["", "\n\n"]
    assert all(part.strip() for part in parts[2:])
    assert "to be filled in" not in text(name)


@pytest.mark.parametrize("name", NAMES)
def test_its_releases_are_those_of_the_table(name: str) -> None:
    environment = text(name).partition(HEADINGS[0])[2].partition("\n## ")[0]
    assert RELEASES.findall(" ".join(environment.split())) == [table("Findings")[name]]


@pytest.mark.parametrize("name", NAMES)
def test_the_public_reports_of_the_table_are_on_its_page(name: str) -> None:
    (row,) = re.findall(rf"^\| \[`{name}`\].*$", README.read_text(encoding="utf-8"), re.MULTILINE)
    reports = re.findall(r"vllm#\d+", row.split(" | ")[-1])
    related = text(name).partition("## Related issues\n")[2].partition("\n## ")[0]
    assert set(reports) <= set(re.findall(r"vllm#\d+", related))


@pytest.mark.parametrize("name", NAMES)
def test_it_has_one_diff_of_vllm(name: str) -> None:
    fix = text(name).partition("### Fix\n")[2].partition("\n## ")[0]
    assert BLOCK.findall(fix) == [diff_of(name)]
    assert len(set(files_of(diff_of(name)))) == len(files_of(diff_of(name)))


@pytest.mark.live
@pytest.mark.parametrize("name", NAMES)
def test_its_diff_applies(name: str, tmp_path: Path) -> None:
    patched(diff_of(name), tmp_path / "patched")


@pytest.mark.live
def test_a_diff_of_other_lines_does_not_apply(tmp_path: Path) -> None:
    """The test of the test."""
    diff = diff_of("window_of_loaded_tokens")
    other = diff.replace("has_mamba_layers", "has_other_layers")
    assert other != diff
    with pytest.raises(AssertionError, match="patch does not apply"):
        patched(other, tmp_path / "patched")
