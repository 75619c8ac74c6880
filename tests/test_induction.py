"""Every claim about counts is proved by induction, and refuted where a rule or a step is wrong."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest

from kvproof.model.arithmetic.system import System
from kvproof.model.counting_abstraction import registry
from kvproof.model.counting_abstraction.registry import MAKERS, mistakes_in, systems
from kvproof.model.faults.registry import FAULTS
from kvproof.proofs.by_induction import prove_system
from kvproof.proofs.induction import InductionStep, claimed, steps
from kvproof.proofs.proof import Proof
from kvproof.proofs.prove import everything, prove
from kvproof.proofs.registry import OBLIGATIONS
from kvproof.strategies.verdict import Verdict
from tests.cover import others_nightly
from tests.planted import under
from tests.refuted import REFUTED, all_refuted

pytestmark = pytest.mark.proof

WRONG: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "counts_are_none_when_gone": ("leave", lambda t: t._replace(length=1)),
    "computes_known_tokens": ("compute", lambda t: t._replace(computed=t.computed + 1)),
    "counter_counts_full_blocks": (
        "compute",
        lambda t: t._replace(num_cached_blocks=t.num_cached_blocks + 1),
    ),
    "delivered_is_counted": ("sample", lambda t: t._replace(computed=t.computed - 1)),
    "blocks_outlive_their_readers": ("load", lambda h: h._replace(pinned=0)),
    "pool_adds_up": ("move", lambda p: p._replace(free=p.free + 1)),
}
"""Mistakes in the actions of a system rather than in its rules: the claim that finds each, the
action, and what is planted."""


def with_action(system: System, name: str, change: Callable[[Any], Any]) -> System:
    """The system with something else done by one action."""

    def wrong(then: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: change(then(*args))

    actions = [
        dataclasses.replace(a, then=wrong(a.then)) if a.name == name else a for a in system.actions
    ]
    return dataclasses.replace(system, actions=tuple(actions))


@functools.cache
def of_the_spec() -> dict[str, Proof]:
    return {p.id: p for p in prove(names=list(claimed()))}


@pytest.mark.parametrize("name", list(claimed()))
def test_proved_of_the_spec(name: str) -> None:
    proof = of_the_spec()[name]
    assert (proof.verdict, proof.reason, proof.numbers) == (Verdict.PROVED, "", {})
    assert proof.cases == len(steps(claimed()[name].system)) > 1


QUICK = {
    "freed_block_leaks",
    "last_zero_blocks_yield_all",
    "lease_ends_under_reader",
    "partial_block_not_offered",
    "read_is_not_reported",
}
"""Faults of which Z3 refutes all that falls in a second or two."""


@pytest.mark.parametrize("fault", sorted(QUICK))
def test_a_fault_refutes_these(fault: str) -> None:
    """`make nightly` asks all faults, and that nothing else falls: it takes seconds a fault."""
    names = sorted(REFUTED[fault])
    proofs = under([FAULTS[fault]], prove, names=names)
    assert {p.id: p.verdict for p in proofs} == dict.fromkeys(names, Verdict.VIOLATED)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_refutes_these_and_no_others(fault: str) -> None:
    faults = [FAULTS[fault]]
    proofs = under(faults, prove, names=list(claimed()))
    broken = {p.id: p for p in proofs if p.verdict is Verdict.VIOLATED}
    assert set(broken) == all_refuted(fault)
    shaken = {claimed()[n].system for n in broken}
    for proof in proofs:
        if proof.verdict is Verdict.UNKNOWN:
            # It falls only where another claim has fallen.
            assert claimed()[proof.id].system in shaken
            assert proof.reason.startswith("without ")
    for name, proof in broken.items():
        told = proof.counterexample
        assert told is not None, name
        assert told.run, name
        assert proof.finding is not None


def test_every_obligation_is_refuted_by_a_named_fault() -> None:
    """What each fault refutes is asked above, and of arithmetic in `test_proofs`."""
    by_fault = {o.id: {o.killed_by} for o in OBLIGATIONS.values()}
    for fault in FAULTS.values():
        for name in all_refuted(fault.name):
            by_fault.setdefault(name, set()).add(fault.name)
    assert set(by_fault) == set(everything())
    assert set().union(*by_fault.values()) <= set(FAULTS)


@pytest.mark.parametrize(
    "name",
    others_nightly(
        [n for n, c in claimed().items() if c.claim in WRONG],
        [n for n, c in claimed().items() if c.claim != "counts_are_none_when_gone"],
    ),
)
def test_a_planted_mistake_in_an_action_is_refuted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = claimed()[name]
    action, change = WRONG[about.claim]
    make = MAKERS[about.system]
    monkeypatch.setitem(MAKERS, about.system, lambda: with_action(make(), action, change))
    systems.cache_clear()
    try:
        step = InductionStep(about.system, action)
        (proof,) = prove_system.__wrapped__(about.system, (about,), timeout_s=300.0)
        assert proof.verdict is Verdict.VIOLATED, proof
        if proof.numbers:
            assert any(
                s.broken_by(about.claim, proof.numbers)
                for s in steps(about.system)
                if set(s.variables) == set(proof.numbers)
            )
    finally:
        monkeypatch.undo()
        systems.cache_clear()
    if proof.numbers and set(step.variables) == set(proof.numbers):
        assert not step.broken_by(about.claim, proof.numbers)


def test_what_z3_gives_up_on_is_unknown() -> None:
    about = claimed()["window.table_fits_its_tokens"]
    (proof,) = prove_system.__wrapped__("window", (about,), timeout_s=1e-6)
    assert proof.verdict is Verdict.UNKNOWN
    assert "Z3 gave up" in proof.reason


def test_a_rule_z3_cannot_follow_is_unknown() -> None:
    faults = {
        "arithmetic.counts:needed_from_load": lambda loaded, prompt: (
            loaded if loaded < prompt else prompt - 1
        )
    }
    (proof,) = under(faults, prove, names=["window.null_is_not_needed"])
    assert proof.verdict is Verdict.UNKNOWN


def test_a_mistake_in_what_a_system_does_not_use_makes_no_difference() -> None:
    assert under([FAULTS["front_trim"]], mistakes_in, "full") == frozenset()
    assert under([FAULTS["front_trim"]], mistakes_in, "transfer of full") != frozenset()
    assert registry.systems().keys() == MAKERS.keys()
