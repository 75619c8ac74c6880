"""Reports that nobody waits for: they come only where they are asked for, and change nothing."""

import pytest

from kvproof.model.events import Abort, Complete, Schedule, StrayReport, Submit, TransferDone
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from tests.planted import under

STRAY = CLUSTERS["pd-stray"]
PREFILL = (Submit("P", "r0"), Schedule("P"), Complete("P"))
LOAD = (*PREFILL, Submit("D", "r0"), Schedule("D"))


def after(*events: object) -> ModelMachine:
    """The model after these events."""
    machine = ModelMachine(STRAY)
    for event in events:
        machine.take(event)  # type: ignore[arg-type]
    return machine


@pytest.mark.parametrize(
    ("events", "offered"),
    [
        pytest.param(PREFILL, [], id="P waits to be told that it has sent"),
        pytest.param(LOAD, [], id="D waits to be told that it has received"),
        pytest.param((*LOAD, Abort("D", "r0")), [], id="so it does for an aborted request"),
        pytest.param((*LOAD, TransferDone("r0")), ["P", "D"], id="both were told"),
        pytest.param((Submit("P", "r0"), Abort("P", "r0")), ["P"], id="the request is gone"),
    ],
)
def test_a_report_is_stray_where_nobody_waits_for_it(events, offered) -> None:
    found = [e.engine for e in after(*events).stimuli() if isinstance(e, StrayReport)]
    assert found == offered


def test_where_the_scheduler_takes_it_for_awaited_the_engine_dies() -> None:
    faults = [FAULTS["stray_report_dies"]]
    machine = under(faults, after, *LOAD, TransferDone("r0"))
    # D has not taken the load over yet: one more report is the same as one.
    assert not under(faults, machine.take, StrayReport("D", "r0")).after.engine("D").dead
    assert under(faults, machine.take, StrayReport("P", "r0")).after.engine("P").dead
