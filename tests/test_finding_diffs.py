"""The diffs of the findings' pages mend what their reproducers show: on vLLM with the diff, the
case `[released]` passes. On vLLM as it is it fails: see tests/test_reproducers.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from findings.report import self_contained
from tests.finding_diffs import diff_of, offered, overlay
from tests.findings import ISSUES, REPORTED_WITH

pytestmark = [pytest.mark.live, pytest.mark.nightly]


REPORTS = [path.parent.name for path in ISSUES if offered(path.parent.name)]
NAMES = sorted({*REPORTS, *REPORTED_WITH})


@pytest.mark.parametrize("name", NAMES)
def test_the_reproducer_passes_with_the_diff(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "patched"
    overlay(diff_of(REPORTED_WITH.get(name, name)), folder)
    (tmp_path / f"test_{name}.py").write_text(self_contained(name), encoding="utf-8")
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "pytest", "--noconftest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-k", "released", f"test_{name}.py"],
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(paths)}
        | {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
