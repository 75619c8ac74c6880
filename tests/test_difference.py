"""What one machine breaks and another does not, on results made by hand."""

from collections.abc import Callable, Sequence
from typing import Any

from kvproof.gate.difference.compare import (
    Results,
    only_on,
    same,
    the_same,
)
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Play, follow
from kvproof.model.events import Complete, Event, Submit
from kvproof.model.plans.connector import ConnectorPlan, RunSteps
from kvproof.model.plans.part import Taken
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.shrinking import AT_ONCE, shrunk, shrunk_together
from tests.two_machines import FULL, broken, result, unkept


def test_a_candidate_is_the_shortest_run_and_the_most_severe_is_first() -> None:
    leak, crash = broken("all_blocks_return", length=2), broken("engine_survives", length=9)
    these = Results()
    these.add([result("long", broken("all_blocks_return", length=5), crash), result("short", leak)])
    others = Results({"long": result("long"), "short": result("short")})
    assert [(c.workload, c.found) for c in only_on(these, others, ["long", "short"])] == [
        ("long", crash),
        ("short", leak),
    ]
    assert [c.workload for c in only_on(these, others, ["long"])] == ["long", "long"]


def test_a_consequence_comes_after_a_break_that_nothing_precedes() -> None:
    first = broken("pool_adds_up", length=9)
    later = broken("pool_adds_up", length=2, after=(broken("writer_is_alone").key,))
    these = Results({"a": result("a", later), "b": result("b", first)})
    [candidate] = only_on(these, Results({"a": result("a"), "b": result("b")}), ["a", "b"])
    assert candidate.found is first


def test_what_could_not_be_driven_on_one_side_differs_in_nothing() -> None:
    found = Results({"w": result("w", broken("pool_adds_up"))})
    lost = Results({"w": Result("w", reason="This vLLM has no x")})
    assert only_on(found, Results({"w": result("w")}), ["w"])
    for others in (lost, Results()):
        assert not only_on(found, others, ["w"])
    assert not only_on(lost, Results({"w": result("w")}), ["w"])


def test_the_same_break_may_come_after_another_event() -> None:
    here, there = broken("pool_adds_up", "Schedule"), broken("pool_adds_up", "Complete")
    exact = result("w", there, here)
    assert same(here.key, exact) is here
    assert same(here.key, result("w", there)) is there
    other = result("w", broken("writer_is_alone"), broken("pool_adds_up", by="some_finding"))
    assert not the_same(here.key, other)
    assert the_same(here.key, result("w", here))


def shows(wanted: Callable[[Taken], bool], tried: list[int]) -> Callable[[Any], int | None]:
    def first(runs: Sequence[Taken]) -> int | None:
        tried.append(len(runs))
        return next((index for index, run in enumerate(runs) if wanted(run)), None)

    return first


def test_a_run_is_made_as_short_as_what_it_shows() -> None:
    cluster = CLUSTERS["pd-default"]
    names = [job.name for job in cluster.jobs]
    assert len(names) > 1
    events: tuple[Event, ...] = tuple(Submit("P", name) for name in names)
    events += (*[Complete("P")] * 20, Submit("P", "r0"))
    run, tried = follow(cluster, "w", events), list[int]()

    def wanted(made: Taken) -> bool:
        return made.events.count(Complete("P")) >= 3 and made.events[-1] == Submit("P", "r0")

    made = run.of(shrunk_together(run.run, shows(wanted, tried), lambda: True))
    assert made.events == (*[Complete("P")] * 3, Submit("P", "r0"))
    assert [job.name for job in made.cluster.jobs] == ["r0"]
    assert made.name == run.name
    assert 0 < max(tried) <= AT_ONCE


def test_what_shows_nothing_any_more_is_left_as_it_is_and_time_ends_it() -> None:
    run = Taken(FULL, (Submit("E", "r0"), *[Complete("E")] * 9))
    assert shrunk_together(run, lambda _: None, lambda: True) == run
    turns = iter([True, True, False, False, False, False])
    shorter = shrunk_together(run, lambda _: 0, lambda: next(turns, False))
    assert 1 < len(shorter.events) <= len(run.events)


def test_a_plan_is_made_shorter_as_long_as_it_shows_the_same() -> None:
    """All actions may go: what a plan shows may be shown by the drain."""
    found = unkept("every_request_ends", 11).run("plan")
    assert isinstance(found, Play)
    tried: list[int] = []

    def shows(plan: ConnectorPlan) -> bool:
        tried.append(len(plan.actions))
        return {3, 7} <= {each.times for each in plan.actions if isinstance(each, RunSteps)}

    plan = shrunk(found.run, shows, 200)
    assert plan.actions == (RunSteps(3), RunSteps(7))
    assert shrunk(found.run, lambda _: True, 200).actions == ()
    assert len(tried) < 200
    tried.clear()
    shrunk(found.run, shows, 5)
    assert len(tried) == 5


def test_a_job_that_another_one_follows_stays_with_it() -> None:
    cluster = next(
        c for c in CLUSTERS.values() if len(c.jobs) > 1 and any(j.follows for j in c.jobs)
    )
    run = Taken(cluster, tuple(Submit(cluster.prefill.name, j.name) for j in cluster.jobs))

    def wanted(made: Taken) -> bool:
        left = {job.name for job in made.cluster.jobs}
        assert all(not job.follows or job.follows in left for job in made.cluster.jobs)
        return True

    assert len(shrunk_together(run, shows(wanted, []), lambda: True).cluster.jobs) == 1
