"""A finding of real vLLM is replayed in a process in which no episode came before it."""

from contextlib import ExitStack

from kvproof.cli.alone import Alone
from kvproof.cli.answer import traced
from kvproof.cli.machines import maker
from kvproof.cli.parser import Setup
from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster
from kvproof.model.faults.fault import planted
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import Machine, ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.traces.trace import Trace
from kvproof.strategies.sampling.stateful import sample

FAULT = FAULTS["untouched_hits"]


def found() -> Trace:
    """The trace of a finding of the model with a fault."""
    cluster, checks = CLUSTERS[FAULT.cluster], [CHECKS["references_are_exact"]]
    with planted(FAULT):
        outcome = sample(cluster, ModelMachine, checks, seed=0, examples=60)
        trace = traced(Setup(cluster, (FAULT,), None), maker("model", (FAULT,)), outcome, 0)
    assert trace is not None
    return trace


def test_what_shows_alone_and_what_needs_earlier_episodes() -> None:
    wrong, left = False, ExitStack()

    def make(cluster: Cluster) -> Machine:
        """A machine that takes what earlier episodes left in the module."""
        if wrong:
            left.enter_context(planted(FAULT))
        return ModelMachine(cluster)

    trace = found()
    with Alone(make) as fresh:
        wrong = True
        assert fresh.shows(trace) is False
    with Alone(make) as late:
        assert late.shows(trace) is True


def test_a_search_that_finds_nothing_ends_the_process() -> None:
    with Alone(ModelMachine) as unasked:
        pass
    assert unasked.ended


def test_a_run_that_cannot_be_taken_says_nothing() -> None:
    def make(_cluster: Cluster) -> Machine:
        raise ValueError("no machine")

    trace = found()
    with Alone(make) as alone:
        assert alone.shows(trace) is None
