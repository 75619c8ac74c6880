"""This module settles the claims about one count-level system: it combines the steps of the
induction."""

import dataclasses
import functools
from collections.abc import Hashable, Iterable, Sequence

from kvproof.model.counting_abstraction.registry import systems
from kvproof.proofs.induction import Claimed, ClaimResult, settle, steps
from kvproof.proofs.proof import Proof, counterexample, run_to
from kvproof.proofs.solve import TIMEOUT_S
from kvproof.strategies.verdict import Verdict


@functools.lru_cache(maxsize=64)
def prove_system(
    name: str,
    claims: tuple[Claimed, ...],
    mistakes: Hashable = (),  # noqa: ARG001 (cached proofs depend on it)
    *,
    timeout_s: float = TIMEOUT_S,
) -> tuple[Proof, ...]:
    """Settle claims about one count-level system by induction, `timeout_s` for each question. Other
    claims about it are assumed.

    A claim that is not proved is no longer assumed, and the other claims are tried again, until the
    remaining claims prove each other (Houdini). PROVED holds for all sizes. VIOLATED has a step
    that breaks the claim on plain ints too; `counterexample` says whether the step is reachable. A
    claim that fails only because another claim is not assumed, and that no run breaks, is UNKNOWN.
    Results are cached; `mistakes` is what is planted in the system.
    """
    proofs: dict[str, Proof] = {}
    without: frozenset[str] = frozenset()
    left = list(claims)
    while left:
        round_ = _round(name, left, timeout_s, without)
        fallen = [c for c in left if round_[c.claim].verdict is not Verdict.PROVED]
        for each in fallen or left:
            proofs[each.claim] = _among(round_[each.claim], each, proofs.values(), without)
        if not fallen:
            break
        without |= {c.claim for c in fallen}
        left = [c for c in left if c not in fallen]
    return tuple(proofs[c.claim] for c in claims)


def _round(
    name: str, claims: Sequence[Claimed], timeout_s: float, without: frozenset[str]
) -> dict[str, Proof]:
    """Return the result of each claim if the claims `without` are not assumed."""
    settled: dict[str, list[ClaimResult]] = {c.claim: [] for c in claims}
    for step in steps(name):
        for found in settle(step, list(settled), timeout_s, without=without):
            settled[found.claim].append(found)
    return {c.claim: _induction(c, settled[c.claim], without) for c in claims}


def _among(
    proof: Proof, claimed: Claimed, before: Iterable[Proof], without: frozenset[str]
) -> Proof:
    """A refutation that does not assume all claims may be about an unreachable state. It counts
    only with a run, for its sizes or for the sizes that refuted a claim `before`."""
    cti = proof.counterexample
    if not without or cti is None or cti.run:
        return proof
    system = systems()[claimed.system]
    for other in before:
        if other.numbers:
            sizes = system.parameters(*(other.numbers[n] for n in system.parameters._fields))
            run = run_to(system, claimed.claim, sizes)
            if run is not None:
                return dataclasses.replace(proof, numbers=other.numbers, counterexample=run)
    reason = f"without {', '.join(sorted(without))} a step breaks it; {cti.sentence}"
    return dataclasses.replace(
        proof, verdict=Verdict.UNKNOWN, reason=reason, numbers={}, counterexample=None
    )


def _induction(claimed: Claimed, settled: Sequence[ClaimResult], without: frozenset[str]) -> Proof:
    """Return the proof that follows from the cases of an induction."""
    refuted = [s for s in settled if s.answer.result == "sat"]
    open_ = [s for s in settled if s.answer.result == "unknown"]
    proof = Proof(
        claimed.id,
        claimed.name,
        Verdict.PROVED,
        seconds=sum(s.seconds for s in settled),
        method="induction",
        cases=len(settled),
    )
    if refuted:
        step, numbers = refuted[0].step, refuted[0].answer.numbers
        if not step.broken_by(claimed.claim, numbers, without=without):
            reason = f"Z3 refutes it, but it holds on plain ints: {numbers}"
            return dataclasses.replace(proof, verdict=Verdict.UNKNOWN, reason=reason)
        cti = counterexample(step, claimed.claim, numbers)
        return dataclasses.replace(
            proof, verdict=Verdict.VIOLATED, numbers=numbers, counterexample=cti
        )
    if open_:
        reason = "; ".join(f"{s.step.action}: {s.answer.reason}" for s in open_)
        return dataclasses.replace(proof, verdict=Verdict.UNKNOWN, reason=reason)
    return proof
