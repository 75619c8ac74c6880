"""This module proves the obligations for all sizes, or finds numbers that break them."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from kvproof.model.counting_abstraction.registry import mistakes_in
from kvproof.model.errors import UsageError, unknown
from kvproof.proofs.by_induction import prove_system
from kvproof.proofs.induction import Claimed, claimed
from kvproof.proofs.obligation import Obligation
from kvproof.proofs.proof import Proof
from kvproof.proofs.registry import OBLIGATIONS
from kvproof.proofs.solve import TIMEOUT_S, solve
from kvproof.strategies.verdict import Outcome, Verdict

SAMPLES = 400
SAMPLED_UP_TO = 9
"""The number of samples of plain ints on which each claim is also evaluated, and the largest
int."""

TIMEOUT_MAX_S = 86_400
"""The longest time limit of one obligation: a day."""


def sampled(obligation: Obligation) -> Iterable[dict[str, int]]:
    """Return small numbers for the variables, the same ones each time."""
    source = random.Random(obligation.id)
    for _ in range(SAMPLES):
        yield {
            name: source.randint(r.lowest, SAMPLED_UP_TO if r.highest is None else r.highest)
            for name, r in obligation.for_all.items()
        }


def _doubt(obligation: Obligation) -> str:
    """Say why a proof is doubtful: no sampled numbers meet the assumptions, or the claim breaks on
    plain ints, so that Z3 got a different formula from the one that the explorer runs. Empty if the
    proof is not doubtful."""
    allowed = 0
    for numbers in sampled(obligation):
        claim = obligation.on(numbers)
        if not claim.given:
            continue
        allowed += 1
        if not claim.holds:
            return f"Z3 proves the claim, but plain ints break it: {numbers}"
    return "" if allowed else "none of the sampled numbers meets the assumptions"


def _settle(obligation: Obligation, timeout_s: float) -> tuple[Verdict, dict[str, int], str]:
    answer = solve(obligation, timeout_s)
    if answer.result == "unknown":
        return Verdict.UNKNOWN, {}, answer.reason
    if answer.result == "sat":
        if obligation.broken_by(answer.numbers):
            return Verdict.VIOLATED, answer.numbers, ""
        reason = f"Z3 refutes the claim, but it holds on plain ints: {answer.numbers}"
        return Verdict.UNKNOWN, {}, reason
    doubt = _doubt(obligation)
    return (Verdict.UNKNOWN, {}, doubt) if doubt else (Verdict.PROVED, {}, "")


def prove_one(obligation: Obligation, *, timeout_s: float = TIMEOUT_S) -> Proof:
    """Settle one obligation in at most about `timeout_s` seconds.

    PROVED holds for all numbers in the ranges and was also evaluated on plain ints. VIOLATED comes
    with numbers that break the claim on plain ints too. Everything else is UNKNOWN.
    """
    began = time.process_time()
    verdict, numbers, reason = _settle(obligation, timeout_s)
    seconds = time.process_time() - began
    return Proof(obligation.id, obligation.name, verdict, numbers, seconds, reason)


def prove(
    *,
    names: Sequence[str] | None = None,
    timeout_s: float = TIMEOUT_S,
    progress: Callable[[Proof], None] | None = None,
) -> list[Proof]:
    """Settle the obligations with these ids, or all of them, in the order of the registry.

    `timeout_s` is for each obligation; `progress` is called after each. Raises UsageError for an
    id that is not in the registry and for a time limit out of range.
    """
    if not 0 < timeout_s <= TIMEOUT_MAX_S:
        raise UsageError(
            f"The time limit is {timeout_s} seconds. "
            f"Use more than 0 and at most {TIMEOUT_MAX_S}, for example {TIMEOUT_S:g}."
        )
    chosen = list(everything()) if names is None else list(names)
    for name in chosen:
        everything_named(name)
    proofs = []
    for proof in _proofs(chosen, timeout_s):
        proofs.append(proof)
        if progress is not None:
            progress(proof)
    return proofs


def everything() -> tuple[str, ...]:
    """Return the ids of all obligations: those of arithmetic, and the claims proved by
    induction."""
    return (*OBLIGATIONS, *claimed())


def everything_named(name: str) -> Obligation | Claimed:
    """Return the obligation or claim with this id. Raises UsageError if there is none."""
    if name in OBLIGATIONS:
        return OBLIGATIONS[name]
    if name in claimed():
        return claimed()[name]
    raise unknown("proof obligation", name, everything())


def _proofs(names: Sequence[str], timeout_s: float) -> Iterator[Proof]:
    for name in names:
        if name in OBLIGATIONS:
            yield prove_one(OBLIGATIONS[name], timeout_s=timeout_s)
    # A claim is proved together with all others about its system, also those that are not in
    # `names`.
    for system in dict.fromkeys(claimed()[n].system for n in names if n in claimed()):
        claims = tuple(c for c in claimed().values() if c.system == system)
        proofs = prove_system(system, claims, mistakes_in(system), timeout_s=timeout_s)
        yield from (proof for proof in proofs if proof.id in names)


def outcome(proofs: Sequence[Proof]) -> Outcome:
    """Return all proofs as one verdict: VIOLATED if any is, else UNKNOWN if any is (or there is
    none), else PROVED. The coverage counts the obligations by verdict; the finding is the first
    one."""
    by_verdict = {v: [p for p in proofs if p.verdict is v] for v in Verdict}
    worst = Verdict.PROVED
    for verdict in (Verdict.UNKNOWN, Verdict.VIOLATED):
        if by_verdict[verdict]:
            worst = verdict
    reason = "; ".join(f"{p.id}: {p.reason}" for p in by_verdict[Verdict.UNKNOWN])
    if not proofs:
        worst, reason = Verdict.UNKNOWN, "no obligation was selected"
    coverage = {
        "obligations": len(proofs),
        "proved": len(by_verdict[Verdict.PROVED]),
        "violated": len(by_verdict[Verdict.VIOLATED]),
        "unknown": len(by_verdict[Verdict.UNKNOWN]),
    }
    seconds = sum(p.seconds for p in proofs)
    finding = next((p.finding for p in proofs if p.finding), None)
    return Outcome(worst, coverage=coverage, finding=finding, reason=reason, seconds=seconds)
