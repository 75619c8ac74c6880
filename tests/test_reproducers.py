"""The reproducers of the findings: each fails on this release for the reason it states, and passes
with its patch if it has one; tests/test_finding_pages.py runs those whose page has a diff. They run
as a stranger would run them: each in its self-contained form, alone in a folder, without kvproof.
"""

import ast
import functools
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

import pytest

from findings.report import self_contained
from tests.finding_diffs import offered
from tests.findings import FINDINGS, FOLDER, REPORTED_WITH, imported

REPRODUCERS = sorted(FOLDER.rglob("test_*.py"))
NAMES = [path.stem.removeprefix("test_") for path in REPRODUCERS]


class Case(NamedTuple):
    """One test of a reproducer as it ran. `said` is empty where it passed."""

    name: str
    said: str


@functools.cache
def ran(folder: Path) -> dict[str, list[Case]]:
    """Runs all reproducers in one process. Gives their cases by module."""
    for path, name in zip(REPRODUCERS, NAMES, strict=True):
        (folder / path.name).write_text(self_contained(name), encoding="utf-8")
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "--noconftest", "-q", "-p", "no:cacheprovider"]
    command += [f"--junitxml={report}", *(path.name for path in REPRODUCERS)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900
    )
    assert report.exists(), done.stdout + done.stderr
    cases: dict[str, list[Case]] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        said = "".join(str(outcome.get("message")) for outcome in case)
        cases.setdefault(case.attrib["classname"], []).append(Case(case.attrib["name"], said))
    return cases


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproducers")


def reason_of(path: Path) -> str:
    """The words a reproducer says it fails with."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FAILS_WITH":
            return str(ast.literal_eval(node.value))
    raise AssertionError(f"{path.name} does not say what it FAILS_WITH")


@pytest.mark.live
@pytest.mark.parametrize("path", REPRODUCERS, ids=NAMES)
def test_it_fails_as_released_for_the_stated_reason_and_passes_patched(
    path: Path, folder: Path
) -> None:
    cases = {case.name: case.said for case in ran(folder)[path.stem]}
    failed = [name for name, said in cases.items() if said]
    assert failed, f"{path.name} passes on this release: is the finding mended?"
    for name in failed:
        assert "[patched" not in name, f"{name} fails: {cases[name]}"
        assert reason_of(path) in cases[name]
    page = REPORTED_WITH.get(path.parent.name, path.parent.name)
    assert any("[patched" in name for name in cases) or offered(page)


@pytest.mark.nightly
@pytest.mark.live
def test_they_fail_and_pass_in_their_folders_too() -> None:
    """There they import the helpers, and `findings/conftest.py` applies the patches."""
    names = ["window_of_loaded_tokens", "fewer_than_none_predicted"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [f"findings/{name}" for name in names]
    done = subprocess.run(
        command, cwd=FOLDER.parent, capture_output=True, text=True, timeout=300, check=False
    )
    assert "2 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert all(reason_of(FOLDER / name / f"test_{name}.py") in done.stdout for name in names)


@pytest.mark.parametrize("name", NAMES)
def test_its_self_contained_form_needs_nothing_but_vllm_torch_and_pytest(name: str) -> None:
    assert imported(self_contained(name)) <= {"vllm", "torch", "pytest"}


def test_every_finding_has_a_reproducer() -> None:
    traced = [path for path in REPRODUCERS if (path.parent / "trace.jsonl").exists()]
    assert sorted(path.stem.removeprefix("test_") for path in traced) == FINDINGS
