"""Abstract steps: what a run did, whatever its prompts and blocks, and what no run did."""

from collections import Counter
from typing import Any

import pytest

from kvproof.cli.main import main
from kvproof.model.config import Job
from kvproof.model.events import Abort, Schedule, Submit
from kvproof.model.faults.registry import fault_named
from kvproof.model.finding import Finding
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.sampling.abstract_steps import abstract_steps
from kvproof.strategies.sampling.exercised import (
    directed_steps,
    known_steps,
    random_steps,
    table,
    verdict,
)
from kvproof.strategies.verdict import Outcome, Verdict
from tests.breadth_first import search
from tests.planted import under
from tests.reasons import said


def known(name: str) -> Counter[str]:
    cluster, seen = CLUSTERS[name], Counter[str]()
    search(cluster, (), 20_000, on_step=lambda s: seen.update(abstract_steps(cluster, s)))
    return seen


def test_one_engine_has_the_steps_of_a_request() -> None:
    seen = known("full")
    assert {
        "Submit on both: none to waiting",
        "Schedule on both: Admit with nothing",
        "Schedule on both: Admit with hit",
        "Schedule on both: waiting to running with blocks",
        "Schedule on both: takes a cached block",
        "Complete on both: running with blocks to none",
    } <= seen.keys()
    assert not any("load" in name or "transfer" in name for name in seen)


def test_a_pair_has_those_of_a_transfer_that_fails() -> None:
    seen = known("pd-default")
    assert {
        "Schedule on decode: Admit with hit and load",
        "Schedule: transfer offered to reading",
        "TransferFail: transfer reading to abandoned",
        "TransferFail on decode: loading with blocks to failed with blocks",
        "Schedule on decode: FinishLoad failed with blocks",
    } <= seen.keys()


def test_they_say_nothing_of_names_and_lengths() -> None:
    letters = {job.prompt for job in CLUSTERS["pd"].jobs} | {j.name for j in CLUSTERS["pd"].jobs}
    assert not [name for name in known("pd") if any(word in name for word in letters)]


def test_a_step_that_does_nothing_says_so() -> None:
    cluster = CLUSTERS["pd-full"].carrying(Job("r0", "ab"))
    run = Run(ModelMachine(cluster), ())
    for event in (
        Submit("P", "r0"),
        Schedule("P"),
        Submit("D", "r0"),
        Schedule("D"),
        Schedule("D"),
    ):
        run.take(event)
    assert list(abstract_steps(cluster, run.steps[-1])) == [
        "Schedule",
        "Schedule on decode: nothing to do",
    ]


# What was never exercised


GREEN = Outcome(Verdict.SAMPLED, {"examples": 1})


def test_few_states_show_all_steps_of_the_largest_preset() -> None:
    cluster = CLUSTERS["pd-default"]
    assert known_steps(cluster).keys() == known_steps(cluster, 20_000).keys()


def test_a_known_step_has_a_run_that_takes_it() -> None:
    cluster = CLUSTERS["pd-aborting"]
    for name, known in known_steps(cluster).items():
        assert name in directed_steps(cluster, ModelMachine, known.trace)


def test_an_aimed_run_stops_where_it_cannot_go_on() -> None:
    cluster = CLUSTERS["full"]
    seen = directed_steps(cluster, ModelMachine, [Submit("E", "r0"), Abort("E", "r0")])
    assert seen == Counter(["Submit", "Submit on both: none to waiting"])


def test_an_aimed_run_is_checked() -> None:
    cluster = CLUSTERS["full"]
    faults = [fault_named("double_free")]
    trace = known_steps(cluster)["Complete on both: running with blocks to none"].trace
    with pytest.raises(Violated):
        under(faults, directed_steps, cluster, lambda c: ModelMachine(c), trace)


def test_random_steps_count_every_episode() -> None:
    seen, outcome = random_steps(CLUSTERS["full"], ModelMachine, 0, 10, 20)
    assert outcome.coverage["examples"] == 10
    assert seen["Submit"] == outcome.coverage["events"]["Submit"]


def test_a_missed_step_is_unknown() -> None:
    known, exercised = Counter(a=2, b=1), Counter(a=1, c=5)
    rows = table(known, exercised)
    assert [row.step for row in rows if row.missed] == ["b"]
    assert verdict(rows, [GREEN]) is Verdict.UNKNOWN
    assert verdict(table(known, exercised + Counter(b=1)), [GREEN]) is Verdict.SAMPLED


def test_a_violated_episode_is_not_covered_over() -> None:
    rows = table(Counter(a=1), Counter(a=1))
    violated = Outcome(Verdict.VIOLATED, {"examples": 1}, finding=Finding("i", said("r")))
    assert verdict(rows, [GREEN, violated]) is Verdict.VIOLATED
    interrupted = Outcome(Verdict.UNKNOWN, {"examples": 0}, reason="interrupted")
    assert verdict(rows, [interrupted, GREEN]) is Verdict.UNKNOWN


@pytest.mark.nightly
@pytest.mark.live
def test_live_vllm_is_driven_to_every_step_of_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    covered = ["sample", "--machine", "live", "--steps-covered"]
    assert main([*covered, "--config", "pd-losing", "--examples", "5"]) == 0
    assert "episodes; 0 are missing." in capsys.readouterr().out


def test_steps_are_covered_on_real_vllm_alone(refused: Any) -> None:
    assert "Use --machine live" in refused("sample", "--steps-covered")
    argv = ["sample", "--machine", "live", "--steps-covered", "--fault", "front_trim"]
    assert "without --fault" in refused(*argv)
