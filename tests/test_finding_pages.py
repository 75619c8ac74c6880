"""Each finding has a page for the bug-report form of vLLM, with its reproducer and a diff."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from findings.report import self_contained
from tests.engine.test_findings import SHOWN
from tests.finding_diffs import BLOCK, diff_of, files_of, offered, overlay, patched
from tests.finding_gates import digest, is_red, known, rewritten
from tests.finding_releases import README, ROW, tried
from tests.finding_releases import rewritten as with_releases
from tests.findings import FINDINGS, ISSUES, OTHERS, REPORTED_WITH, report_of

REPORTS = [path.parent.name for path in ISSUES]
OURS = "## Found with kvproof"
"""What stands below this heading is about kvproof; above it a maintainer of vLLM reads."""

SCRIPT = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NO_DIFF = "We offer no diff"

UNGATED = {
    *("adjacent_images_wait", "chunk_counted_from_local_hit", "continued_session_is_not_counted"),
    *("latent_window_is_not_promoted", "parked_stores_block_a_reset", "zeroed_before_saved"),
    *("partial_chunk_is_stored_as_whole", "promotion_evicts_what_was_found"),
    *("reset_stores_window_again", "session_loads_more_than_sent", "tail_beyond_offload_limit"),
}
"""Findings whose diffs no gate has judged yet: their pages say "not run". A new page is gated."""


def section(text: str, heading: str) -> str:
    """What stands below a heading."""
    found = text.partition(f"\n{heading}\n")[2]
    return re.split(r"^##+ ", found, maxsplit=1, flags=re.MULTILINE)[0]


def script_of(name: str) -> str:
    """The reproducer of a finding."""
    return (README.parent / name / f"test_{name}.py").read_text(encoding="utf-8")


def named(name: str) -> set[str]:
    """What the sanitizer names on real engines, for a report."""
    together = {name, *(part for part, whole in REPORTED_WITH.items() if whole == name)}
    return {each for one in together & set(SHOWN) for each in SHOWN[one].named}


@pytest.mark.parametrize("name", REPORTS)
def test_a_page_has_its_reproducer_its_diff_and_what_was_run_with_it(name: str) -> None:
    """`python benchmarks/finding_diffs.py --write` writes what was run with the diffs."""
    text = report_of(name)
    [script] = SCRIPT.findall(text)
    assert all(part.strip() in script_of(name) for part in script.split("\n\n\n"))
    fix = section(text, "### Fix")
    assert len(BLOCK.findall(fix)) + (NO_DIFF in fix) == 1
    assert not offered(name) or rewritten(name, text) == text
    gated = known().get(name, {}).get("diff") == digest(name) if offered(name) else True
    assert gated == (name not in UNGATED)
    assert not is_red(known().get(name, {}))
    above, _, ours = text.partition(OURS)
    assert "kvproof" not in above
    assert all(f"`{each}`" in ours for each in named(name))


def test_every_folder_is_in_the_table_of_its_kind() -> None:
    table = README.read_text(encoding="utf-8")
    others = [path.parent.name for path in OTHERS]
    kinds = {
        "Findings": REPORTS,
        "Findings on another's page": sorted(REPORTED_WITH),
        "Deviations that are no defects": [n for n in others if n not in REPORTED_WITH],
    }
    for heading, expected in kinds.items():
        found = ROW.finditer(section(table, f"## {heading}"))
        assert sorted(row["name"] for row in found) == expected
    assert set(REPORTED_WITH.values()) <= set(REPORTS)
    assert f"The {len(REPORTS)} pages are" in table
    counted = f"of {len(REPORTS) + len(REPORTED_WITH)} findings were seen on real engines"
    assert counted in (README.parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.mark.live
def test_each_diff_applies(tmp_path: Path) -> None:
    for name in filter(offered, REPORTS):
        assert len(set(files_of(diff_of(name)))) == len(files_of(diff_of(name)))
        patched(diff_of(name), tmp_path / name)


# The reproducers with the diffs


WITH_DIFF = [path.parent.name for path in ISSUES if offered(path.parent.name)]
NAMES = sorted({*WITH_DIFF, *REPORTED_WITH})


@pytest.mark.live
@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_the_reproducer_passes_with_the_diff(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "patched"
    overlay(diff_of(REPORTED_WITH.get(name, name)), folder)
    (tmp_path / f"test_{name}.py").write_text(self_contained(name), encoding="utf-8")
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "pytest", "--noconftest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-k", "not patched", f"test_{name}.py"],
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(paths)}
        | {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# The releases on which a finding is


def test_a_reproducer_passes_where_the_trace_shows_nothing_or_it_is_said_why() -> None:
    for name, one in tried().items():
        assert {*one.passes} & {*one.shown} == {v for v in one.differs if v in one.passes}, name


def test_the_page_says_on_which_releases_a_finding_is() -> None:
    """Rewrite it with `python -m tests.finding_releases`."""
    text = README.read_text(encoding="utf-8")
    assert with_releases(text) == text
    assert {row["name"] for row in ROW.finditer(text)} == set(tried())


def test_every_finding_is_declared_with_the_releases_that_show_it() -> None:
    assert sorted(tried()) == sorted(path.parent.name for path in (*ISSUES, *OTHERS))
    assert all(len({*tried()[name].fails, *tried()[name].shown}) > 1 for name in FINDINGS)
