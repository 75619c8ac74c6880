"""Random episodes: what is drawn, how often, and that the same seed gives the same."""

import sys
from itertools import islice
from pathlib import Path

import pytest

from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.events import Abort, Event, describe
from kvproof.model.faults.registry import FAULTS, fault_named
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS, cluster_named
from kvproof.model.presets.room import SUFFIX
from kvproof.model.traces.trace_reader import read
from kvproof.strategies.conformance.replay import replay
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.sampling import random_episodes
from kvproof.strategies.sampling.episode import Target
from kvproof.strategies.sampling.random_episodes import RandomEpisodes
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.sampling.wide import EPISODES as OF_A_CLUSTER
from kvproof.strategies.sampling.wide import random_clusters, sample_many
from kvproof.strategies.verdict import Outcome, Verdict
from tests.planted import under
from tests.processes import python

pytest_plugins = ["pytester"]

# Episodes


EPISODES = 30


def runs(name: str, seed: int) -> list[tuple[Event, ...]]:
    """The events of some episodes."""
    ended: list[Run] = []
    episodes = RandomEpisodes(Target(CLUSTERS[name], ModelMachine, ended=ended.append), 40, seed)
    for _ in range(EPISODES):
        episodes.run()
    return [tuple(step.event for step in run.steps) for run in ended]


@pytest.mark.parametrize("name", ["full", "pd", "sessions", "async"])
def test_every_episode_goes_to_its_end_and_few_are_alike(name: str) -> None:
    taken = runs(name, 0)
    assert len(taken) == EPISODES
    assert len(set(taken)) > EPISODES // 2


def test_an_episode_that_is_given_up_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_episodes, "BYTES", 20)
    with pytest.raises(UsageError, match=r"An episode of 40 choices .* Use fewer\.$"):
        runs("pd", 0)


def test_the_same_seed_gives_the_same_episodes() -> None:
    assert runs("pd", 1) == runs("pd", 1) != runs("pd", 2)


def test_an_episode_leaves_some_kinds_of_events_out() -> None:
    """Some episodes abort, and some do not, though each could."""
    with_abort = [any(isinstance(e, Abort) for e in events) for events in runs("async", 0)]
    assert 0 < sum(with_abort) < EPISODES


# Many clusters


def names(seed: int, number: int) -> list[str]:
    return [cluster.name for cluster in islice(random_clusters(seed), number)]


@pytest.mark.nightly
def test_each_preset_is_drawn_before_one_comes_again() -> None:
    one = names(0, 2 * len(CLUSTERS))
    assert sorted(name.removesuffix(SUFFIX) for name in one[::2]) == sorted(CLUSTERS)
    assert len(set(one[1::2])) == len(CLUSTERS)
    assert 0 < sum(name.endswith(SUFFIX) for name in one) < len(CLUSTERS)
    assert one[:40] == names(0, 40)
    assert one[:40] != names(1, 40)


def test_a_few_episodes_of_each_cluster_are_run_until_there_are_enough() -> None:
    done: list[int] = []
    outcome = sample_many(
        random_clusters(0),
        ModelMachine,
        examples=2 * OF_A_CLUSTER + 1,
        steps=5,
        progress=lambda n, _: done.append(n),
    )
    assert outcome.verdict is Verdict.SAMPLED
    assert list(outcome.coverage["clusters"].values()) == [OF_A_CLUSTER, OF_A_CLUSTER, 1]
    assert outcome.coverage["examples"] == done[-1] == 2 * OF_A_CLUSTER + 1
    assert outcome.coverage["unseen_at_most"] == 3 / (2 * OF_A_CLUSTER + 1)


def test_a_violation_has_its_cluster_and_is_told_before_it_is_shrunk() -> None:
    told: list[Violated] = []
    outcome = under(
        [FAULTS["double_free"]], sample_many, random_clusters(0), ModelMachine, failed=told.append
    )
    assert outcome.verdict is Verdict.VIOLATED
    assert outcome.cluster is not None
    assert list(outcome.coverage["clusters"])[-1] == outcome.cluster.name
    assert len(told) == 1
    assert len(told[0].events) >= len(outcome.events)


@pytest.mark.parametrize("later", [True, False])
def test_a_later_feature_is_passed_over_and_named_and_any_other_drift_is_passed_on(
    later: bool,
) -> None:
    """A vLLM whose P/D cannot be driven is not one without violations."""

    def some(cluster: Cluster) -> ModelMachine:
        if cluster.disaggregated:
            raise AdapterDrift("This vLLM has no NIXL", later=later)
        return ModelMachine(cluster)

    if not later:
        with pytest.raises(AdapterDrift, match="no NIXL"):
            sample_many(random_clusters(0), some, examples=20, steps=5)
        return
    outcome = sample_many(random_clusters(0), some, examples=20, steps=5)
    assert outcome.coverage["examples"] == 20
    why = set(outcome.coverage["clusters_undriven"].values())
    assert all(text.startswith("This vLLM has no NIXL.") for text in why)
    assert not set(outcome.coverage["clusters_undriven"]) & set(outcome.coverage["clusters"])


# One seed, one trace


FAULT = fault_named("untouched_hits")
CLUSTER = cluster_named(FAULT.cluster)

PROGRAM = """
from tests.test_sampling import sampled, told
print(told(sampled(7)))
"""


def sampled(seed: int) -> Outcome:
    """One sampling run under the fault."""
    return under([FAULT], sample, CLUSTER, ModelMachine, seed=seed, examples=20, steps=6)


def told(outcome: Outcome) -> str:
    """All that an outcome says, but for the time it took."""
    events = [f"{type(e).__name__} {describe(e)}" for e in outcome.events]
    jobs = outcome.cluster.jobs if outcome.cluster else ()
    facts = (outcome.verdict.name, outcome.coverage, outcome.finding, jobs, events)
    return repr(facts)


def test_sampling_and_exploring_again_give_the_same_trace() -> None:
    first, again = sampled(7), sampled(7)
    assert first.verdict is Verdict.VIOLATED
    assert told(again) == told(first)
    first, again = (under([FAULT], explore, CLUSTER) for _ in range(2))
    assert first.verdict is Verdict.VIOLATED
    assert told(again) == told(first)


@pytest.mark.nightly
def test_sampling_does_not_depend_on_the_process() -> None:
    done = python("-c", PROGRAM, PYTHONHASHSEED="1")
    assert done.stdout.strip() == told(sampled(7)), done.stderr


def test_constants_of_a_module_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = runs("pd-default", 0)
    numbers = ", ".join(str(each) for each in range(255))
    (tmp_path / "of_a_user.py").write_text(f"NUMBERS = [{numbers}]\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        __import__("of_a_user")
        assert runs("pd-default", 0) == before
    finally:
        sys.modules.pop("of_a_user", None)


# A failing test leaves the trace of its run


TESTS = """
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from kvproof.model.faults.fault import planted
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.sampling.episode import CacheMachine, Target

def test_violates():
    target = Target(CLUSTERS["full"], ModelMachine)
    with planted(FAULTS["double_free"]):
        found_first = settings(phases=[Phase.generate], report_multiple_bugs=False)
        run_state_machine_as_test(lambda: CacheMachine(target), settings=found_first)

def test_fails_otherwise():
    assert 1 == 2

def test_passes():
    pass
"""


def report_of(pytester: pytest.Pytester) -> str:
    """What pytest prints about the tests."""
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_inprocess("-q", "-p", "kvproof.cli.keep_traces")
    done.assert_outcomes(failed=2, passed=1)
    return done.stdout.str()


def test_a_violation_is_kept_and_replays(pytester: pytest.Pytester) -> None:
    said = report_of(pytester)
    [kept] = Path("kvproof-traces").iterdir()
    command = f"kvproof replay {kept} --machine model"
    assert said.count(command) == 1

    trace = read(kept)
    again = under([FAULTS["double_free"]], replay, ModelMachine(trace.cluster), trace)
    assert again.differs is None
    assert again.outcome.verdict is Verdict.VIOLATED
    assert again.outcome.finding == trace.finding


def test_a_trace_that_cannot_be_written_is_told_in_the_report(pytester: pytest.Pytester) -> None:
    Path("kvproof-traces").write_text("mine", encoding="utf-8")
    said = report_of(pytester)
    assert said.count("The trace was not written") == 1
    assert "kvproof-traces" in said.split("The trace was not written")[1]
    assert Path("kvproof-traces").read_text(encoding="utf-8") == "mine"
