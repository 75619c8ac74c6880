"""Real engines answer alike with and without the sanitizer, which finds nothing."""

import re
from pathlib import Path

import pytest

from tests.engine.comparisons import is_content, is_served, is_unchanged
from tests.engine.conftest import Runs
from tests.engine.process import Process
from tests.engine.workloads import KINDS, ORDINARY


def test_the_work_is_hard(runs: Runs) -> None:
    served, process = runs.of(None)
    for name, each in served.items():
        is_served(name, each)
    paths = r"/\S*kvproof\S*"  # a clone has this name too
    assert "kvproof" not in re.sub(paths, "", process.log)


@pytest.mark.parametrize("mode", ["record", "warn", "raise"])
def test_the_sanitizer_changes_nothing(runs: Runs, mode: str) -> None:
    served, process = runs.of(mode)
    is_content(process)
    for name, plain in runs.of(None).served.items():
        is_unchanged(name, plain, served[name])


def test_an_engine_core_in_a_process_of_its_own(tmp_path: Path, runs: Runs) -> None:
    """As in a server: the process that serves has no scheduler."""
    until_reset = ORDINARY[: ORDINARY.index(["preempted"]) + 1]
    with Process(tmp_path, mode="raise", several=True, inherited=runs.inherited) as process:
        process.served(["engine", "full", runs.options | KINDS["full"].options])
        answer = process.served(*until_reset)
    is_content(process)
    plain = runs.of(None).served["full async"].answer.outputs
    assert {name: each.tokens for name, each in answer.outputs.items()} == {
        name: plain[name].tokens for name in answer.outputs
    }
    assert set(answer.outputs) == {"a", "b", "c", "d"}
