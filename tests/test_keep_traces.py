"""A failing test leaves the trace of its run, which replays."""

from pathlib import Path

import pytest

from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.traces.trace_reader import read
from kvproof.strategies.conformance.replay import replay
from kvproof.strategies.verdict import Verdict
from tests.planted import under
from tests.processes import python

TESTS = """
from kvproof.model.faults.fault import planted
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.sampling.stateful import check_machine

def test_violates():
    with planted(FAULTS["double_free"]):
        check_machine(CLUSTERS["full"], ModelMachine)

def test_fails_otherwise():
    assert 1 == 2

def test_passes():
    pass
"""


def report_of(folder: Path) -> str:
    """What pytest prints about the tests."""
    (folder / "test_given.py").write_text(TESTS, encoding="utf-8")
    done = python("-m", "pytest", "-q", "-p", "kvproof.cli.keep_traces", cwd=folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 1 passed" in done.stdout
    return done.stdout


def test_a_violation_is_kept_and_replays(tmp_path: Path) -> None:
    said = report_of(tmp_path)
    [kept] = (tmp_path / "kvproof-traces").iterdir()
    command = f"kvproof replay {kept.relative_to(tmp_path)} --machine model"
    assert said.count(command) == 1

    trace = read(kept)
    again = under([FAULTS["double_free"]], replay, ModelMachine(trace.cluster), trace)
    assert again.differs is None
    assert again.outcome.verdict is Verdict.VIOLATED
    assert again.outcome.finding == trace.finding


@pytest.mark.nightly
def test_a_trace_that_cannot_be_written_is_told_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "kvproof-traces").write_text("mine", encoding="utf-8")
    said = report_of(tmp_path)
    assert said.count("The trace was not written") == 1
    assert "kvproof-traces" in said.split("The trace was not written")[1]
    assert (tmp_path / "kvproof-traces").read_text(encoding="utf-8") == "mine"
