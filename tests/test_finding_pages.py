"""Each finding has a page that can be pasted into vLLM's bug-report form, and says what is true.

`tests/test_reproducers.py` runs the reproducers, `tests/engine/test_findings.py` the engines,
`tests/test_finding_diffs.py` the reproducers with the diffs, and `benchmarks/finding_diffs.py` the
gate and vLLM's own tests with the diffs.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.engine.test_findings import NAMES, shown
from tests.finding_diffs import BLOCK, diff_of, files_of, offered, patched
from tests.finding_gates import GATE, TESTS, about_gate, about_tests, is_red, known, rewritten
from tests.finding_releases import README, ROW
from tests.findings import ISSUES, OTHERS, REPORTED_WITH, report_of

REPORTS = [path.parent.name for path in ISSUES]
OURS = "## Found with kvproof"
HEADINGS = [
    "## Your current environment",
    "## Describe the bug",
    "### To reproduce",
    "### Expected and actual",
    "### Root cause",
    "### Who is affected",
    "### Related issues",
    "### Fix",
    OURS,
]
TITLE_MAX = 110
"""Characters of a title, without the mark of the heading."""

WORDS_MAX = 500
"""Words of a page, without code."""

ENVIRONMENT = """\
<details>
<summary>The output of <code>python collect_env.py</code></summary>

```text
"""
CODE = re.compile(r"^```.*?^```$|^<details>.*?^</details>$", re.MULTILINE | re.DOTALL)
SCRIPT = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NO_DIFF = "We offer no diff"
SPAN = r"\d+\.\d+(?: to \d+\.\d+)?"
RELEASES = re.compile(rf"Releases: ({SPAN}(?:, (?:not )?{SPAN})*)\.")
OF_OURS = re.compile(r"kvproof|sanitizer|tests/engine|pytest -m", re.IGNORECASE)


def section(text: str, heading: str) -> str:
    """What stands below a heading."""
    found = text.partition(f"\n{heading}\n")[2]
    return re.split(r"^##+ ", found, maxsplit=1, flags=re.MULTILINE)[0]


def complaints(name: str, text: str, row: str, script: str) -> list[str]:
    """What is wrong with the page of a finding, its row of the table, and its test."""
    plain = CODE.sub("", text)
    title, *headings = re.findall(r"^#.*$", plain, re.MULTILINE)
    related, fix = section(text, "### Related issues"), section(text, "### Fix")
    found = ROW.match(row)
    above = text.partition(OURS)[0]
    checks = {
        "its title": title.startswith("# [Bug]: ") and len(title) <= TITLE_MAX + 2,
        "its headings": headings == HEADINGS,
        "an empty section": all(section(text, each).strip() for each in HEADINGS),
        "its environment": ENVIRONMENT in section(text, HEADINGS[0]),
        "its releases": found is not None
        and RELEASES.findall(" ".join(plain.split())) == [found["fails"].strip()],
        "a thread of the table": set(re.findall(r"vllm#\d+", row))
        <= set(re.findall(r"vllm#\d+", related)),
        "a link that breaks": "](" not in plain and "../" not in plain,
        "kvproof above the line": not OF_OURS.search(above),
        "its length": len(plain.split()) <= WORDS_MAX,
        "its script": all(
            part.strip() in script for each in SCRIPT.findall(text) for part in each.split("\n\n\n")
        )
        and len(SCRIPT.findall(text)) == 1,
        "its fix": len(BLOCK.findall(fix)) + (NO_DIFF in fix) == 1,
        "what was run with its diff": len(TESTS.findall(fix)) == len(BLOCK.findall(fix))
        and len(GATE.findall(text)) == len(BLOCK.findall(fix))
        and (not offered(name) or rewritten(name, text) == text),
        "a diff that breaks something": not is_red(known().get(name, {})),
        "what the sanitizer names": all(
            f"`{each}`" in text.partition(OURS)[2] for each in named(name)
        ),
    }
    return [what for what, right in checks.items() if not right]


def named(name: str) -> set[str]:
    """What the sanitizer names on real engines, for a report."""
    together = {name, *(part for part, whole in REPORTED_WITH.items() if whole == name)}
    return {each for one in together & set(NAMES) for each in shown(one).named}


def rows() -> dict[str, str]:
    """The rows of findings/README.md."""
    lines = README.read_text(encoding="utf-8").splitlines()
    return {found["name"]: line for line in lines if (found := ROW.match(line))}


def script_of(name: str) -> str:
    """The reproducer of a finding."""
    return (README.parent / name / f"test_{name}.py").read_text(encoding="utf-8")


def test_nothing_is_wrong_with_a_page() -> None:
    """`python benchmarks/finding_diffs.py --write` writes what was run with the diffs."""
    known = rows()
    wrong = {
        name: found
        for name in REPORTS
        if (found := complaints(name, report_of(name), known[name], script_of(name)))
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("# [Bug]: ", "# ", "its title"),
        ("### Expected and actual", "### Actual", "its headings"),
        ("<details>", "<p>", "its environment"),
        ("Releases: 0.18", "Releases: 0.19", "its releases"),
        ("vllm#43569", "vllm#43568", "a thread of the table"),
        ("### Root cause\n", "### Root cause\n[see](../x.md) ", "a link that breaks"),
        ("### Root cause\n", "### Root cause\nThe sanitizer. ", "kvproof above the line"),
        ("### Root cause\n", "### Root cause\n" + "word " * WORDS_MAX, "its length"),
        ("def test_", "def test_other_", "its script"),
        ("```diff", "```text", "its fix"),
        ("- Gate of the diff: ", "- Gate of the diff: green. ", "what was run with its diff"),
        ("`cached_block_holds_its_key`", "it", "what the sanitizer names"),
    ],
)
def test_each_mistake_on_a_page_is_found(old: str, new: str, what: str) -> None:
    name = "uncomputed_stays_cached"
    text = report_of(name)
    assert old in text
    assert what in complaints(name, text.replace(old, new), rows()[name], script_of(name))


def test_every_folder_is_in_the_table_of_its_kind() -> None:
    known = README.read_text(encoding="utf-8")
    kinds = {"Findings": REPORTS}
    kinds["Findings on another's page"] = sorted(REPORTED_WITH)
    names = [path.parent.name for path in OTHERS]
    kinds["Deviations that are no defects"] = [n for n in names if n not in REPORTED_WITH]
    for heading, expected in kinds.items():
        found = ROW.finditer(section(known, f"## {heading}"))
        assert sorted(row["name"] for row in found) == expected
    assert set(REPORTED_WITH.values()) <= set(REPORTS)


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.parent.name)
def test_a_page_that_is_no_report_says_so_first(path: Path) -> None:
    first = path.read_text(encoding="utf-8").split("\n\n")[1]
    no_defect = "A deviation from what kvproof expects, and no defect to report: "
    assert first.startswith(no_defect) or path.parent.name in REPORTED_WITH


RAN: dict[str, Any] = {"traces": 80, "sampled": 2, "steps": 1000, "exit_code": 0, "mended": ["it"]}
RAN |= {"introduced": [], "verdict": "SAMPLED", "reason": ""}
RED = RAN | {"introduced": ["hit_is_valid"], "exit_code": 1, "verdict": "VIOLATED"}
NOTHING = RAN | {"exit_code": 3, "verdict": "UNKNOWN", "reason": "nothing reaches it", "mended": []}
TESTED = {"of": ["tests/v1/core"], "passed": 800, "broken": []}


@pytest.mark.parametrize(
    ("entry", "red", "words"),
    [
        ({}, False, "not run"),
        ({"gate": RAN}, False, "introduces nothing in 80 traces and 2 random workloads"),
        ({"gate": RED}, True, "RED, it introduces `hit_is_valid`"),
        ({"gate": NOTHING}, False, "UNKNOWN, nothing reaches it"),
        ({"tests": TESTED}, False, "800 of `tests/v1/core` pass, as without it"),
        ({"tests": TESTED | {"broken": ["a::b"]}}, True, "1 of `tests/v1/core` fail"),
    ],
)
def test_what_was_run_with_a_diff_is_told(entry: dict[str, Any], red: bool, words: str) -> None:
    assert is_red(entry) == red
    assert words in about_gate(entry) + about_tests(entry)


@pytest.mark.live
def test_each_diff_applies(tmp_path: Path) -> None:
    for name in filter(offered, REPORTS):
        assert len(set(files_of(diff_of(name)))) == len(files_of(diff_of(name)))
        patched(diff_of(name), tmp_path / name)


@pytest.mark.live
def test_a_diff_of_other_lines_does_not_apply(tmp_path: Path) -> None:
    """The test of the test."""
    diff = diff_of("hit_without_room_waits")
    other = diff.replace("has_encoder_inputs", "has_other_inputs")
    assert other != diff
    with pytest.raises(AssertionError, match="patch does not apply"):
        patched(other, tmp_path / "patched")
