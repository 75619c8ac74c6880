"""P and D in the model: pushes, stray reports, follow-up turns, unequal blocks."""

from collections import deque

import pytest

from kvproof.model import phases
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.errors import NotAllowed
from kvproof.model.events import (
    Abort,
    Complete,
    LeaseExpire,
    Schedule,
    StrayReport,
    Submit,
    TransferDone,
    TransferFail,
)
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.phases import TRANSITIONS, Phase, Way
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference import apply as model
from kvproof.model.state import Transfer, initial
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.run import Run
from kvproof.strategies.verdict import Verdict
from tests.driving import taken
from tests.planted import under

# Reports that nobody waits for


STRAY = CLUSTERS["pd-stray"]
PREFILL = (Submit("P", "r0"), Schedule("P"), Complete("P"))
LOAD = (*PREFILL, Submit("D", "r0"), Schedule("D"))


def after(*events: object) -> ModelMachine:
    """The model after these events."""
    return taken(ModelMachine(STRAY), *events)


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


# Follow-up turns


REVERSE = "r0 reverse"
FULL = (Group("full", 2),)
HYBRID = (Group("full", 2), Group("mamba", 2))
WINDOWED = (Group("full", 2), Group("window", 2, window=3))


def cluster(groups: tuple[Group, ...], prompt: str, answer: int, follow_up: str) -> Cluster:
    jobs = (Job("r0", prompt, answer), Job("r1", follow_up, follows="r0"))
    p = EngineConfig("P", groups, 16, "prefill", 16)
    d = EngineConfig("D", groups, 16, "decode", 16)
    return Cluster(
        "turns", (p, d), jobs, follow_up_turns=True, failures=1, load_failure="recompute"
    )


def until(run: Run, *wanted: type) -> None:
    """Serve without disturbance until the next event can be one of these."""
    while not any(isinstance(e, wanted) for e in run.stimuli):
        run.take(next(e for e in run.stimuli if isinstance(e, (Schedule, TransferDone))))


def reverse_transfer(run: Run) -> Transfer:
    found = run.machine.state.transfer(REVERSE)
    assert found is not None
    return found


def test_a_turn_that_d_computes_itself_is_not_over_with_its_lease_on_p() -> None:
    run = Run(ModelMachine(cluster(FULL, "abc", 2, "abc..")), ())
    for event in (Submit("P", "r0"), Submit("D", "r0"), TransferFail("r0"), LeaseExpire("r0")):
        while event not in run.stimuli:
            run.take(next(e for e in run.stimuli if isinstance(e, (Schedule, Complete))))
        run.take(event)
    assert Submit("P", "r1") not in run.stimuli
    until(run, Submit)
    assert reverse_transfer(run).phase == Phase.OFFERED
    assert Submit("P", "r1") in run.stimuli


@pytest.mark.parametrize("length", range(1, 11))
@pytest.mark.parametrize("groups", [FULL, HYBRID, WINDOWED], ids=["full", "hybrid", "window"])
def test_turns_of_any_length_keep_all_invariants(groups: tuple[Group, ...], length: int) -> None:
    prompt = "abc....defg"[:length]
    outcome = explore(cluster(groups, "abc", 4, prompt))
    assert outcome.verdict is Verdict.EXHAUSTED


# The table of transitions is what the reference does


Taken = tuple[Way, Phase, type, Phase]

COVERING = ("push", "push-leases", "pd-losing", "turns-recomputing", "turns-state")
"""Small clusters in which a transfer goes every way that there is."""


def taken_in(cluster: Cluster) -> set[Taken]:
    """The transitions of all steps of the reference in a cluster."""
    start = initial(cluster)
    seen, todo, found = {start}, deque([start]), set()
    while todo:
        state = todo.popleft()
        for event in model.stimuli(cluster, state):
            after = model.apply(cluster, state, event).after
            for name in {t.request for t in (*state.transfers, *after.transfers)}:
                was, now = state.phase(name), after.phase(name)
                if was != now:
                    found.add((phases.way_of(cluster, name), was, type(event), now))
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return found


def test_the_reference_takes_every_transition_of_the_table_and_no_other() -> None:
    taken = set().union(*(taken_in(CLUSTERS[name]) for name in COVERING))
    lines = ((way, t) for way, found in TRANSITIONS.items() for t in found)
    assert taken == {(w, t.was, t.event, t.now) for w, t in lines if t.was != t.now}


@pytest.mark.parametrize(
    ("was", "now", "may"),
    [
        (Phase.OFFERED, Phase.READING, True),
        (Phase.READING, Phase.READING, True),
        (Phase.READING, Phase.OFFERED, False),
        (Phase.LOST, Phase.RELEASING, False),
    ],
)
def test_only_what_is_in_the_table_can_be_written(was: Phase, now: Phase, may: bool) -> None:
    transfer = Transfer("r0", was, 4, ((1,),))
    if may:
        assert transfer.to(now, tokens=3) == Transfer("r0", now, 3, ((1,),))
        return
    with pytest.raises(NotAllowed, match=f"from {was} to {now}"):
        transfer.to(now)
