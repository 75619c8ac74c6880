"""Plans near one: they differ in one thing, and have the same requests."""

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import (
    Again,
    Engine,
    Engines,
    Follow,
    Play,
    Plays,
    Workload,
    follow,
)
from kvproof.gate.search.comparison import Comparison
from kvproof.gate.search.variants import (
    CHANGES_MAX,
    EMPTIED,
    VARIANTS_MAX,
    variants,
)
from kvproof.model.config import Job
from kvproof.model.events import Complete, Event, Schedule, Submit
from kvproof.model.machine import ModelMachine
from kvproof.model.plans.connector import (
    ConnectorPlan,
    Copies,
    Drain,
    ResetCache,
    RunSteps,
    SubmitRequest,
)
from kvproof.model.plans.engine import given
from kvproof.model.plans.messages import Pause, Resume, Send
from kvproof.model.plans.random_engines import random_engine
from kvproof.model.presets import CLUSTERS
from kvproof.model.reference.blocks import pool
from kvproof.strategies.run import Run
from tests.fake_sides import is_like, nothing
from tests.two_machines import broken, driven, result

SUBMIT = SubmitRequest(0, 7, 3)
ACTIONS = (SUBMIT, RunSteps(2), SUBMIT, ResetCache())
PLAN = ConnectorPlan(CLUSTERS["full"].engines[0], ACTIONS, copies=Copies(late=True))
PLAY = Play("plays:offloading:0", "offloading", PLAN)


def test_a_plan_near_another_differs_in_one_thing_and_has_the_same_requests() -> None:
    """Before these comes one that shares nothing with them."""
    found = plans_near(PLAY)
    assert len(found) == 1 + 8 + 4 + 2
    assert len({plan.actions[0] for plan in found}) > len(found) / 2
    for after_one in found:
        before, *others = after_one.actions
        assert isinstance(before, SubmitRequest)
        assert before.beside
        assert tuple(others[:2]) == EMPTIED
        plan = replace(after_one, actions=tuple(others[2:]))
        fields = plan.__struct_fields__
        assert sum(getattr(plan, name) != getattr(PLAN, name) for name in fields) <= 1
        emptied = Drain() in plan.actions
        assert not emptied or str(EMPTIED)[1:-1] in str(plan.actions)
        assert abs(len(plan.actions) - 2 * emptied - len(ACTIONS)) <= 1
        assert plan.actions.count(SUBMIT) == 2
    many = replace(PLAY, plan=replace(PLAN, actions=ACTIONS * 20))
    assert len(plans_near(many)) == VARIANTS_MAX


def plans_near(play: Play) -> list[ConnectorPlan]:
    workloads = [each for each in variants(play, 0, 8) if isinstance(each, Plays)]
    assert len({each.name for each in workloads}) == len(workloads)
    return [plan for each in workloads for plan in each.plans or ()]


def events_near(run: Follow, at_once: int) -> list[tuple[Event, ...]]:
    workloads = [each for each in variants(run, 0, at_once) if isinstance(each, Again)]
    return [taken.events for each in workloads for taken in each.runs]


def test_a_run_near_another_has_a_few_other_events_after_requests_of_its_own() -> None:
    events = (Submit("E", "r0"), *[Schedule("E"), Complete("E")] * 4)
    run = follow(CLUSTERS["full"], "run", events)
    near = [each for one in variants(run, 0, 8) if isinstance(one, Again) for each in one.runs]
    assert len(near) == VARIANTS_MAX
    assert len({*near}) > VARIANTS_MAX / 2
    assert [each.events for each in near] == events_near(run, 6)
    for each in near:
        before = each.cluster.jobs[len(run.cluster.jobs) :]
        assert 1 <= len(before) <= 3
        first = [number for number, event in enumerate(each.events) if event not in events]
        assert abs(len(each.events) - len(events)) <= CHANGES_MAX + max(first) + 1
        machine = Run(ModelMachine(each.cluster))
        for _ in machine.follow(each.events[: max(first) + 1]):
            pass
        state = machine.machine.state
        assert {name for _, name in state.ended} == {job.name for job in before}
        assert pool.is_idle(state.engines[0])


def test_a_run_after_other_requests_is_whole_if_it_has_all_of_its_own_events() -> None:
    """Else no excuse that head needs would count there. Of the events before, some are too many."""
    events = (Submit("E", "r0"), *[Schedule("E"), Complete("E")] * 2)
    cluster = CLUSTERS["full"].carrying(Job("r0", "aaaa", 2))
    [near, *_] = variants(follow(cluster, "run", events), 0, VARIANTS_MAX)
    assert isinstance(near, Again)
    whole = [record.whole for record in driven(near).records]
    assert 0 < sum(whole) < len(whole)


def test_a_plan_of_an_engine_core_has_variants_with_the_same_requests() -> None:
    sent, late = Send(0, "r0", 2, 3, 4), Pause(2, "keep")
    plan = given((sent, late, Resume(1)), chunk_tokens=1)
    found = variants(Engine("run", plan), 0, 8)
    near = [one for each in found if isinstance(each, Engines) for one in each.plans or ()]
    assert len({*near}) == len(near) == 5 + 2 + 7
    for each in near:
        assert each.kinds == ("full",)
        before, first, *_ = each.actions
        assert isinstance(before, Send)
        assert before.shared == 0
        assert first.after > sent.after
        assert [a.request for a in each.actions if isinstance(a, Send)] == ["before", "r0"]
        assert each != plan


def dies(event: str, statement: str) -> Break:
    """The death of an engine in a plan."""
    found = broken("engine_survives", event)
    return dataclasses.replace(found, plan=PLAY, death="KeyError in step", statement=statement)


DIES = dies("Step", "jobs[0]")
OTHERWISE = dies("Drain", "jobs[1]")


@pytest.mark.parametrize(
    ("shown", "new"), [(DIES, False), (dies("Drain", "jobs[0]"), False), (OTHERWISE, True)]
)
@pytest.mark.parametrize("run", [PLAY, Engine("engine", random_engine(3))])
def test_what_base_breaks_near_it_is_not_introduced(
    compare: Any, run: Play | Engine, shown: Break, new: bool
) -> None:
    where = f"{run.name}, again, variants from 8"
    of_base, of_head = (dataclasses.replace(each, plan=run) for each in (shown, DIES))

    def base(workload: Workload) -> Result:
        return result(workload.name, of_base) if workload.name == where else nothing(workload)

    def head(workload: Workload) -> Result:
        return nothing(workload) if is_like(workload) else result(workload.name, of_head)

    found: Comparison = compare(base, head, run)
    assert [each.found for each in found.introduced] == [of_head] * new
