"""A break is told apart from another one of the same invariant by the signs of its fault."""

import functools

from benchmarks.releases.recognised import (
    made_by,
    on_the_model,
    repeats,
)
from kvproof.gate.difference.judged import Break, followed
from kvproof.live.known.registry import KNOWN
from kvproof.model.faults.fault import Fault, planted
from kvproof.model.faults.registry import FAULTS
from kvproof.model.machine import ModelMachine
from kvproof.strategies.witnesses import Witness, witnesses


@functools.cache
def witness(name: str) -> Witness:
    return next(witnesses([FAULTS[name]]))


def broken_with(fault: Fault, run: Witness) -> list[Break]:
    """What breaks on the model with a fault that takes the stimuli of a run."""
    with planted(fault):
        found = followed(run.cluster, ModelMachine, run.events, known=KNOWN.values())
    return list(found.breaks.values())


def recognised(name: str, other: str) -> list[bool]:
    """Whether what `other` breaks on the run of a fault is taken for this fault."""
    run = witness(name)
    signs = on_the_model(run.cluster, run.events, run.fault, KNOWN.values())
    return [made_by(run.fault, signs, each) for each in broken_with(FAULTS[other], run)]


def test_a_fault_is_recognised_by_its_own_signs() -> None:
    assert recognised("preemption_keeps_counter", "preemption_keeps_counter") == [True, True]
    assert recognised("front_trim", "front_trim") == [True]
    assert recognised("superseded_state_reserved", "superseded_state_reserved") == [True]


def test_another_fault_that_breaks_the_same_invariant_is_not_taken_for_it() -> None:
    invariant = "counter_counts_only_cached"
    name, other = "preemption_keeps_counter", "null_blocks_counted_as_cached"
    found = broken_with(FAULTS[other], witness(name))
    assert invariant in {each.signature.check for each in found}
    assert invariant in FAULTS[name].breaks
    assert not any(recognised(name, other))


def test_a_finding_of_a_trace_is_repeated_by_the_same_signature_alone() -> None:
    run = witness("preemption_keeps_counter")
    own, *_ = broken_with(run.fault, run)
    assert repeats(run.cluster, run.events[-1], run.finding, own)
    for wrong in broken_with(FAULTS["null_blocks_counted_as_cached"], run):
        if wrong.signature != own.signature:
            assert not repeats(run.cluster, run.events[-1], run.finding, wrong)
