"""The claims about one count-level system, settled: the steps of the induction put together."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from kvproof.model.rules import Rules
from kvproof.model.tally.registry import systems
from kvproof.strategies.symbolic.cti import counterexample, walked_into
from kvproof.strategies.symbolic.induction import Claimed, steps
from kvproof.strategies.symbolic.inductive import Settled, settle
from kvproof.strategies.symbolic.proof import Proof
from kvproof.strategies.symbolic.walks import broken_claims
from kvproof.strategies.verdict import Verdict


@functools.lru_cache(maxsize=64)
def prove_system(
    name: str, claims: tuple[Claimed, ...], rules: Rules, timeout_s: float = 10.0
) -> tuple[Proof, ...]:
    """Settle claims about one count-level system by induction, `timeout_s` for each question.

    PROVED holds for all sizes and was also evaluated on random walks. VIOLATED comes with a step
    that breaks the claim on plain ints too; `counterexample` tells whether it can be reached. The
    same question is not asked twice.
    """
    walked = broken_claims(name, rules)
    settled: dict[str, list[Settled]] = {c.claim: [] for c in claims}
    for step in steps(name):
        for found in settle(step, list(settled), rules, timeout_s):
            settled[found.claim].append(found)
    proofs = [_induction(c, settled[c.claim], rules) for c in claims]
    false = any(p.verdict is Verdict.VIOLATED for p in proofs)
    return tuple(
        _beside(p, c, walked[c.claim], rules, false) if c.claim in walked else p
        for c, p in zip(claims, proofs, strict=True)
    )


def _beside(
    proof: Proof, claimed: Claimed, walked: tuple[Any, Any], rules: Rules, false: bool
) -> Proof:
    """A proof of what a walk breaks. It stands on claims that are `false`, or it is a mistake of
    ours: then nobody knows."""
    if proof.verdict is not Verdict.PROVED:
        return proof
    if not false:
        reason = f"Z3 proves it, but a walk breaks it: {walked}"
        return dataclasses.replace(proof, verdict=Verdict.UNKNOWN, reason=reason)
    told = walked_into(systems(rules)[claimed.system], claimed.claim, *walked)
    return dataclasses.replace(proof, verdict=Verdict.VIOLATED, counterexample=told)


def _induction(claimed: Claimed, settled: Sequence[Settled], rules: Rules) -> Proof:
    """What the cases of an induction amount to."""
    refuted = [s for s in settled if s.answer.result == "sat"]
    open_ = [s for s in settled if s.answer.result == "unknown"]
    proof = Proof(
        claimed.id,
        claimed.name,
        Verdict.PROVED,
        seconds=sum(s.seconds for s in settled),
        method="induction",
        cases=len(settled),
        slowest_s=max(s.seconds for s in settled),
    )
    if refuted:
        step, numbers = refuted[0].step, refuted[0].answer.numbers
        if not step.broken_by(rules, claimed.claim, numbers):
            reason = f"Z3 refutes it, but plain ints keep it: {numbers}"
            return dataclasses.replace(proof, verdict=Verdict.UNKNOWN, reason=reason)
        told = counterexample(step, claimed.claim, rules, numbers)
        return dataclasses.replace(
            proof, verdict=Verdict.VIOLATED, numbers=numbers, counterexample=told
        )
    if open_:
        reason = "; ".join(f"{s.step.action}: {s.answer.reason}" for s in open_)
        return dataclasses.replace(proof, verdict=Verdict.UNKNOWN, reason=reason)
    return proof
