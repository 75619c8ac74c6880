"""Runs of vLLM 0.32.0 or 0.33.0 in which a check saw a new defect where there is none: vLLM was
right, or it has a defect that is known. A run that shows another one belongs here."""

from pathlib import Path

import pytest

from kvproof.gate.difference.judged import driven
from kvproof.gate.difference.workload import follow
from kvproof.live.known.registry import KNOWN
from kvproof.model.traces.trace_reader import read
from tests.watching import live_machine

pytestmark = pytest.mark.live

RUNS = sorted((Path(__file__).parent / "testdata" / "false_alarms").glob("*.jsonl"))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.stem)
def test_nothing_new_is_seen(run: Path) -> None:
    trace = read(run)
    taken = follow(trace.cluster, run.stem, trace.events)
    found = driven(taken, live_machine, known=KNOWN.values())
    assert found.records[0].skipped == 0
    assert not found.course.dead
    assert [str(key) for key in found.breaks if not key.by] == []
