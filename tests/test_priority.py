"""Who is served first, who is preempted, and how many run."""

import pytest

from kvproof.invariants.check import broken
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.errors import UsageError
from kvproof.model.events import (
    Admit,
    Complete,
    Compute,
    Event,
    FinishLoad,
    Preempt,
    Schedule,
    Submit,
    TransferDone,
    TransferFail,
    bare,
)
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS

FULL = Group("full", 2)


def taken(cluster: Cluster, *events: Event) -> ModelMachine:
    """A model after these events."""
    machine = ModelMachine(cluster)
    for event in events:
        machine.take(event)
    return machine


def test_the_lowest_number_is_admitted_first() -> None:
    jobs = (Job("late", "ab", priority=2), Job("soon", "cd", priority=1), Job("now", "ef"))
    cluster = Cluster("c", (EngineConfig("E", (FULL,), 9, policy="priority"),), jobs)
    machine = taken(cluster, *(Submit("E", j.name) for j in jobs))
    chose = machine.take(Schedule("E")).event
    assert isinstance(chose, Schedule)
    assert [c.request for c in chose.chose or () if isinstance(c, Admit)] == ["now", "soon", "late"]


def test_the_last_gives_way_though_it_is_scheduled() -> None:
    cluster = CLUSTERS["priority-hybrid"]
    machine = taken(cluster, Submit("E", "r0"), Schedule("E"), Complete("E"), Submit("E", "r1"))
    machine.take(Schedule("E"))
    machine.take(Complete("E"))
    cached = machine.state.engine("E").cached
    step = machine.take(Schedule("E"))
    assert bare(step.event) == Schedule(
        "E", (Compute("r0", 1), Preempt("r0", "r1"), Compute("r1", 1))
    )
    engine = step.after.engine("E")
    assert engine.running == ("r1",)
    assert engine.step == (("r1", 1),)
    assert {key for key, _ in engine.cached} <= {key for key, _ in cached}


def test_a_request_with_a_failed_load_is_not_served_with_those_that_hold_blocks() -> None:
    groups = (Group("full", 8), Group("window", 2, window=2))
    common = {"groups": groups, "num_blocks": 16, "policy": "priority"}
    cluster = Cluster(
        "c",
        (
            EngineConfig("P", role="prefill", chunk_tokens=8, **common),
            EngineConfig("D", role="decode", chunk_tokens=1, **common),
        ),
        (Job("r0", "a", 1), Job("r1", "a", 1)),
        failures=1,
        load_failure="recompute",
    )
    machine = taken(cluster, Submit("P", "r0"), Submit("P", "r1"), Schedule("P"), Complete("P"))
    for event in (Submit("D", "r0"), Submit("D", "r1"), Schedule("D"), TransferFail("r0")):
        machine.take(event)
    machine.take(TransferDone("r1"))
    step = machine.take(Schedule("D"))
    assert bare(step.event) == Schedule("D", (FinishLoad("r0"), FinishLoad("r1"), Compute("r1", 1)))
    assert not list(broken(cluster, step, [INVARIANTS["priority_is_kept"]]))


def test_a_priority_that_nobody_heeds_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no serving by priority\. Use policy priority"):
        Cluster("c", (EngineConfig("E", (FULL,)),), (Job("r0", "ab", priority=1),))
    with pytest.raises(UsageError, match=r"policy of engine E is 'prio'\. Use priority"):
        EngineConfig("E", (FULL,), policy="prio")
    with pytest.raises(UsageError, match="max_requests of engine E is 0"):
        EngineConfig("E", (FULL,), max_requests=0)
