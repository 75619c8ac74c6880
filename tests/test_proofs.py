"""Every obligation is proved of the spec, and refuted by its fault with numbers that really do."""

import functools
from collections.abc import Callable

import pytest

from kvproof.model.arithmetic.algebra import Num, if_
from kvproof.model.arithmetic.ranges import Positive
from kvproof.model.faults.registry import FAULTS, fault_named
from kvproof.proofs.obligation import Claim, Obligation, obligation
from kvproof.proofs.proof import Proof
from kvproof.proofs.prove import outcome, prove, prove_one
from kvproof.proofs.registry import OBLIGATIONS
from kvproof.strategies.verdict import Verdict
from tests.planted import under

pytestmark = pytest.mark.proof

BY_ID = {"ids": lambda o: o.id}


@functools.cache
def of_the_spec() -> dict[str, Proof]:
    return {p.id: p for p in prove(names=list(OBLIGATIONS))}


@pytest.mark.parametrize("each", OBLIGATIONS.values(), **BY_ID)
def test_proved_of_the_spec(each: Obligation) -> None:
    proof = of_the_spec()[each.id]
    assert (proof.verdict, proof.reason, proof.numbers) == (Verdict.PROVED, "", {})


def assert_really_broken(each: Obligation, proof: Proof) -> None:
    assert proof.verdict is Verdict.VIOLATED, proof
    assert set(proof.numbers) == set(each.for_all)
    claim = each.on(proof.numbers)
    assert (claim.given, claim.holds) == (True, False)


@pytest.mark.parametrize("each", OBLIGATIONS.values(), **BY_ID)
def test_refuted_by_its_fault(each: Obligation) -> None:
    faults = [fault_named(each.killed_by)]
    (proof,) = under(faults, prove, names=[each.id])
    under(faults, assert_really_broken, each, proof)
    assert each.on(proof.numbers) == Claim(holds=True, given=True)


def test_same_question_same_numbers() -> None:
    faults = [FAULTS["last_zero_blocks_yield_all"]]
    numbers = [[p.numbers for p in under(faults, prove, names=list(OBLIGATIONS))] for _ in range(2)]
    assert numbers[0] == numbers[1]


def _branching(prompt: Num, backoff: Num) -> Num:
    return prompt - backoff if prompt > backoff else prompt


def _comparing(prompt: Num, backoff: Num) -> Num:
    """Z3 answers `==` between terms in an `if` by comparing how they are written."""
    return prompt if prompt == 5 else if_(prompt > backoff, prompt - backoff, prompt)


@pytest.mark.parametrize(
    ("rule", "why"),
    [(_branching, "does not run on Z3 terms"), (_comparing, "plain ints break it")],
)
def test_a_rule_that_z3_cannot_follow_is_unknown(rule: Callable[..., Num], why: str) -> None:
    faults = {"arithmetic.counts:tokens_loaded_by_decode": rule}
    proofs = under(faults, prove, names=["delivered_is_counted"])
    assert proofs[0].verdict is Verdict.UNKNOWN
    assert why in proofs[0].reason
    assert outcome(proofs).verdict.exit_code == 3


@obligation("nothing can be asked here", origin="this test")
def about_nothing(n: Positive) -> Claim:
    return Claim(n == 0, given=n < 1)


@obligation("a cube is no sum of two", origin="Fermat")
def too_hard(a: Positive, b: Positive, c: Positive) -> Claim:
    return Claim(a * a * a + b * b * b != c * c * c)


def test_a_claim_about_no_numbers_is_not_proved() -> None:
    proof = prove_one(about_nothing)
    assert proof.verdict is Verdict.UNKNOWN
    assert proof.reason == "none of the sampled numbers meets the assumptions"


def test_a_proof_cut_by_its_time_limit_is_unknown() -> None:
    proof = prove_one(too_hard, timeout_s=0.2)
    assert proof.verdict is Verdict.UNKNOWN
    assert proof.reason.startswith("Z3 gave up: ")


def test_the_worst_verdict_counts() -> None:
    proved, violated, unknown = (
        Proof(verdict.value, "", verdict)
        for verdict in (Verdict.PROVED, Verdict.VIOLATED, Verdict.UNKNOWN)
    )
    assert outcome([proved]).verdict is Verdict.PROVED
    assert outcome([proved, unknown]).verdict is Verdict.UNKNOWN
    assert outcome([unknown, violated, proved]).verdict is Verdict.VIOLATED
    assert outcome([]).verdict is Verdict.UNKNOWN
    assert outcome([unknown, violated, proved]).coverage == {
        "obligations": 3,
        "proved": 1,
        "violated": 1,
        "unknown": 1,
    }
