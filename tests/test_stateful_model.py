"""Hypothesis drives the model: every preset is green, every fault is found."""

import pytest
from hypothesis import settings
from msgspec.structs import replace

from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Cluster
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Event, Schedule
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import Death
from kvproof.model.step import Step
from kvproof.strategies.conformance.replay import record
from kvproof.strategies.run import Violated
from kvproof.strategies.sampling import stateful
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.verdict import Verdict
from tests.cover import TENTH, others_nightly
from tests.driving import check_machine
from tests.planted import under

pytestmark = pytest.mark.stateful

SCOPES = {replace(c, name="scope", jobs=()): name for name, c in CLUSTERS.items()}
"""Presets that differ in more than their jobs, which are drawn here."""

SHARE = 10
"""The profile says how many episodes one machine deserves; each preset gets a tenth of them: the
explorer takes each of them to its end, and here the jobs are drawn too."""


@pytest.mark.parametrize("name", [n for n in SCOPES.values() if not n.startswith("fault")])
def test_every_invariant_and_guard_holds_in_a_preset(name: str) -> None:
    check_machine(CLUSTERS[name], ModelMachine, examples=max(settings().max_examples // SHARE, 5))


SEEDS = {"copied_before_filled": 2}
"""For faults that the episodes of the seed 0 come to late: after 871, of this one."""


@pytest.mark.parametrize("name", others_nightly(FAULTS, TENTH))
def test_every_fault_is_found(name: str) -> None:
    fault = FAULTS[name]
    expected = [INVARIANTS[i] for i in fault.breaks]
    cluster = CLUSTERS[fault.cluster]
    seed = SEEDS.get(fault.name, 0)
    outcome = under(
        [fault], sample, cluster, ModelMachine, expected, seed=seed, examples=1200, shrink=False
    )
    assert outcome.verdict is Verdict.VIOLATED
    assert outcome.finding is not None
    assert outcome.finding.invariant in fault.breaks


def test_a_violation_is_small_and_its_events_can_be_taken_again() -> None:
    fault = FAULTS["double_free"]
    outcome = under([fault], sample, CLUSTERS["full"], ModelMachine)
    assert outcome.coverage["examples"] == 1
    assert outcome.coverage["steps"] >= len(outcome.events)
    assert "unseen_at_most" not in outcome.coverage
    assert [type(e).__name__ for e in outcome.events] == ["Submit", "Schedule", "Complete"]
    assert outcome.cluster is not None
    assert [(j.prompt, j.max_tokens) for j in outcome.cluster.jobs] == [("a", 1)]
    assert under([fault], record, ModelMachine(outcome.cluster), outcome.events) is not None


def test_a_green_sample_says_what_it_covered(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, int]] = []
    outcome = sample(
        CLUSTERS["full"], ModelMachine, examples=12, progress=lambda *done: seen.append(done)
    )
    assert outcome.verdict is Verdict.SAMPLED
    assert outcome.coverage["examples"] == 12
    assert outcome.coverage["unseen_at_most"] == 3 / 12
    assert outcome.coverage["steps"] == sum(outcome.coverage["events"].values())
    assert set(outcome.coverage["events"]) == {"Submit", "Schedule", "Complete"}
    assert seen == [(n, 12) for n in range(1, 13)]
    assert capfd.readouterr() == ("", "")


def test_shrinking_stops_at_its_run_limit_with_the_shortest_failing_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Cluster] = []
    told: list[tuple[Violated, int]] = []

    def make(cluster: Cluster) -> ModelMachine:
        made.append(cluster)
        return ModelMachine(cluster)

    def failed(violated: Violated) -> None:
        told.append((violated, len(made)))

    monkeypatch.setattr(stateful, "SHRINK_RUNS", 1)
    fault = FAULTS["front_trim"]
    outcome = under([fault], sample, CLUSTERS[fault.cluster], make, seed=2, failed=failed)
    assert (outcome.verdict, outcome.reason) == (Verdict.VIOLATED, stateful.CUT.format(1))
    [(first, number)] = told
    assert len(made) == number + 1  # one more run
    assert len(outcome.events) <= len(first.events)


@pytest.mark.nightly
def test_disturbances_are_drawn_where_the_cluster_allows_them() -> None:
    outcome = sample(CLUSTERS["pd-losing"], ModelMachine, invariants=(), examples=150)
    assert {"Abort", "TransferLost", "LeaseExpire"} <= set(outcome.coverage["events"])


def test_the_jobs_of_the_cluster_are_used_on_request() -> None:
    cluster = CLUSTERS["pd"]
    machines: list[ModelMachine] = []

    def make(given: Cluster) -> ModelMachine:
        machines.append(ModelMachine(given))
        return machines[-1]

    assert sample(cluster, make, examples=5, use_jobs=True).verdict is Verdict.SAMPLED
    assert {m.cluster.jobs for m in machines} == {cluster.jobs}


class Closing(ModelMachine):
    """A machine that holds something."""

    opened = 0
    closed = 0

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        Closing.opened += 1

    def close(self) -> None:
        """Let go of it."""
        Closing.closed += 1


def test_every_machine_is_closed() -> None:
    sample(CLUSTERS["full"], Closing, examples=5)
    assert Closing.closed == Closing.opened > 0


class Interrupted(ModelMachine):
    """The user presses Ctrl-C during the 50th step."""

    left = 50

    def take(self, event: Event) -> Step:
        Interrupted.left -= 1
        if not Interrupted.left:
            raise KeyboardInterrupt
        return super().take(event)


def test_an_interrupted_sample_is_unknown() -> None:
    outcome = sample(CLUSTERS["full"], Interrupted)
    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.reason == "interrupted"
    assert 0 < outcome.coverage["steps"] < 50


class Fickle(ModelMachine):
    """Dies once, and never again."""

    died = False

    def take(self, event: Event) -> Step:
        step = super().take(event)
        if isinstance(event, Schedule) and not Fickle.died:
            Fickle.died = True
            dead = step.after.engine(event.engine)._replace(dead=Death(message="for no reason"))
            return step._replace(after=step.after.with_engine(dead))
        return step


def test_a_machine_that_behaves_differently_at_a_repeat_is_unknown() -> None:
    outcome = sample(CLUSTERS["full"], Fickle)
    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.reason == "the machine did not behave the same twice"


class Refusing(ModelMachine):
    """Offers what it does not take."""

    def take(self, event: Event) -> Step:
        if isinstance(event, Schedule):
            raise NotAllowed("no")
        return super().take(event)


def test_a_machine_that_refuses_an_offered_stimulus_is_an_error() -> None:
    with pytest.raises(NotAllowed) as caught:
        sample(CLUSTERS["full"], Refusing)
    assert caught.value.__notes__[0].startswith("while taking Schedule(E)")
