"""One seed, one trace: each run, whatever else is loaded or hashed."""

import pytest

from kvproof.model.events import describe
from kvproof.model.faults.registry import fault_named
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import cluster_named
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.verdict import Outcome, Verdict
from tests.planted import under
from tests.processes import python

FAULT = fault_named("untouched_hits")
CLUSTER = cluster_named(FAULT.cluster)
RUNS = 5

PROGRAM = """
from tests.test_determinism import sampled, told
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


def test_sampling_again_and_again_gives_one_trace() -> None:
    first = sampled(7)
    assert first.verdict is Verdict.VIOLATED
    assert {told(sampled(7)) for _ in range(RUNS - 1)} == {told(first)}


def test_another_seed_draws_other_runs() -> None:
    def coverage(seed: int) -> object:
        return sample(CLUSTER, ModelMachine, invariants=(), seed=seed, examples=10).coverage

    assert coverage(1) == coverage(1)
    assert len({repr(coverage(seed)) for seed in range(4)}) > 1


@pytest.mark.nightly
def test_sampling_does_not_depend_on_the_process() -> None:
    done = python("-c", PROGRAM, PYTHONHASHSEED="1")
    assert done.stdout.strip() == told(sampled(7)), done.stderr


def test_exploring_again_and_again_gives_one_trace() -> None:
    first = under([FAULT], explore, CLUSTER)
    assert first.verdict is Verdict.VIOLATED
    assert {told(under([FAULT], explore, CLUSTER)) for _ in range(RUNS - 1)} == {told(first)}
