"""The exhaustive search by replay: it visits what the explorer visits, and drives vLLM."""

import itertools
from typing import Any

import pytest

from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.faults.fault import planted
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import Machine, ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.explorer.by_replay import explore_by_replay
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.explorer.running import Limits
from kvproof.strategies.verdict import NOT_TWICE, Outcome, Verdict

EVERY = tuple(CHECKS.values())
SMALL = CLUSTERS["pd-async"]
COUNTS = ("states_distinct", "states_generated", "depth", "events", "events_new")


def searched(cluster: Cluster, **more: Any) -> Outcome:
    """The search on the model as a machine."""
    return explore_by_replay(cluster, ModelMachine, EVERY, **more)


def counts(outcome: Outcome) -> list[Any]:
    """What was examined."""
    return [outcome.coverage[name] for name in COUNTS]


@pytest.mark.parametrize("name", ["full", "window", "pd-full"])
def test_it_visits_what_the_explorer_visits(name: str) -> None:
    by_itself = explore(CLUSTERS[name])
    replayed = searched(CLUSTERS[name])
    assert replayed.verdict is by_itself.verdict is Verdict.EXHAUSTED
    assert counts(replayed) == counts(by_itself)


def test_without_fair_runs_its_trace_is_as_short_as_that_of_the_explorer() -> None:
    fault = FAULTS["front_trim"]
    cluster = CLUSTERS[fault.cluster]
    steps = [check for check in EVERY if check.kind != "eventually"]
    with planted(fault):
        by_itself, replayed = explore(cluster), explore_by_replay(cluster, ModelMachine, steps)
    assert replayed.finding is not None
    assert by_itself.finding is not None
    assert replayed.finding.invariant == by_itself.finding.invariant
    assert len(replayed.events) == len(by_itself.events)


def test_a_run_that_does_not_end_is_a_violation() -> None:
    """The fault lets a request wait for ever, which no single step shows."""
    fault = next(
        f for f in FAULTS.values() if "every_request_can_finish" in f.breaks and f.cluster == "full"
    )
    ends = [check for check in EVERY if check.kind == "eventually"]
    with planted(fault):
        outcome = explore_by_replay(CLUSTERS[fault.cluster], ModelMachine, ends)
    assert outcome.finding is not None
    assert outcome.finding.invariant == "every_request_can_finish"


def test_a_cut_search_is_unknown() -> None:
    cut = searched(CLUSTERS["pd-full"], limits=Limits(40))
    assert cut.verdict is Verdict.UNKNOWN
    assert "cut at 40 states" in cut.reason


def test_a_machine_that_does_not_repeat_itself_is_unknown() -> None:
    """Every third run offers its events in another order."""
    runs = itertools.count()

    class Forgetful(ModelMachine):
        def __init__(self, cluster: Cluster) -> None:
            super().__init__(cluster)
            self.number = next(runs)

        def stimuli(self) -> list[Event]:
            return super().stimuli()[:: -1 if self.number % 3 == 2 else 1]

    outcome = explore_by_replay(SMALL, Forgetful, EVERY)
    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.reason == NOT_TWICE


@pytest.mark.live
@pytest.mark.parametrize("name", ["full", pytest.param("pd-full", marks=pytest.mark.nightly)])
def test_live_vllm_visits_every_order_of_events(name: str) -> None:
    from tests.watching import watched

    def make(cluster: Cluster) -> Machine:
        return watched(cluster)

    outcome = explore_by_replay(CLUSTERS[name], make, EVERY)
    assert outcome.verdict is Verdict.EXHAUSTED
    assert outcome.coverage["states_distinct"] > 20
