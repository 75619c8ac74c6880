"""Abstract steps: what a run did, whatever its prompts and blocks."""

from collections import Counter

from kvproof.model.config import Job
from kvproof.model.events import Schedule, Submit
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.run import Run
from kvproof.strategies.sampling.abstract_steps import abstract_steps
from tests.breadth_first import search


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
