"""A test that the adapter stops has said nothing: it is not passed, and the run is not green."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
DRIFTS = """
from kvproof.model.errors import AdapterDrift

def test_it_drives():
    raise AdapterDrift("This vLLM has no Scheduler.schedule", "Scheduler.schedule")

def test_another():
    pass
"""
FAILS = """
def test_it_fails():
    assert 1 == 2
"""


def run(folder: Path, tests: str) -> "subprocess.CompletedProcess[str]":
    """Run pytest with the conftest of these tests."""
    (folder / "test_given.py").write_text(tests, encoding="utf-8")
    path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "conftest", "test_given.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_drift_of_the_adapter_is_unknown(tmp_path: Path) -> None:
    done = run(tmp_path, DRIFTS)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "1 passed, 1 skipped" in done.stdout
    assert "UNKNOWN: This vLLM has no Scheduler.schedule. Use kvproof doctor" in done.stdout


def test_a_failure_comes_first(tmp_path: Path) -> None:
    assert run(tmp_path, DRIFTS + FAILS).returncode == 1
