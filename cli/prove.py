"""`kvproof prove` proves the arithmetic and the counts of the spec, for all sizes."""

import argparse
import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from kvproof.cli import parser as options
from kvproof.cli.finish import finish
from kvproof.model import interruption
from kvproof.model.errors import UsageError
from kvproof.model.faults.fault import planted
from kvproof.model.faults.registry import fault_named
from kvproof.model.wording import sentences
from kvproof.proofs.proof import Proof
from kvproof.proofs.prove import TIMEOUT_MAX_S, everything, outcome, prove
from kvproof.proofs.solve import TIMEOUT_S
from kvproof.reports.document import of_outcome
from kvproof.reports.live_line import progress
from kvproof.reports.screen import say
from kvproof.strategies.verdict import INTERRUPTED, Outcome, Verdict


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `kvproof prove` to its parser."""
    options.add_fault(parser)
    parser.add_argument(
        "--obligation",
        action="append",
        default=[],
        metavar="ID",
        help="prove only this obligation (repeatable; default: all)",
    )
    parser.add_argument(
        "--timeout-s",
        type=seconds,
        default=TIMEOUT_S,
        metavar="N",
        help="time limit of one query, in seconds (default: %(default)s)",
    )


def seconds(text: str) -> float:
    """Read a time limit from the command line, in seconds."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= TIMEOUT_MAX_S:
        raise UsageError(
            f"The time limit {text[:80]!r} is not a number of seconds above 0 and at most "
            f"{TIMEOUT_MAX_S}. Use for example 10."
        )
    return number


def run(args: argparse.Namespace) -> int:
    """Prove, and print one line for each obligation."""
    with planted(*map(fault_named, args.fault)):
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    found, proofs = proved(args.obligation or None, args.timeout_s)

    def output() -> dict[str, Any]:
        fields = of_outcome(found, faults=args.fault, machine="none", seed=args.seed)
        return {**fields, "obligations": proofs}

    def text() -> None:
        for proof in proofs:
            say(line(proof), hang=9)
        why = f": {INTERRUPTED}" if found.reason == INTERRUPTED else ""
        if why and (missing := len(args.obligation or everything()) - len(proofs)):
            say(f"not run: {missing} obligations")
        say(f"{found.verdict.value}{why} - {covered(found)} ({found.seconds:.1f} s)")

    return finish(args, found.verdict.exit_code, output, text)


def proved(names: Sequence[str] | None, timeout_s: float) -> tuple[Outcome, list[Proof]]:
    """Prove the obligations, and return the verdict on all of them. It is UNKNOWN at best if the
    proof is interrupted."""
    proofs: list[Proof] = []
    began = time.monotonic()
    number = len(everything() if names is None else names)

    def note(proof: Proof) -> None:
        proofs.append(proof)
        show(len(proofs), number)

    with interruption.stoppable() as stopped, progress("proving: {} of {} obligations") as show:
        interruption.check()
        prove(names=names, timeout_s=timeout_s, progress=note)
    found = dataclasses.replace(outcome(proofs), seconds=time.monotonic() - began)
    if stopped:
        verdict = found.verdict if found.verdict is Verdict.VIOLATED else Verdict.UNKNOWN
        found = dataclasses.replace(found, verdict=verdict, reason=INTERRUPTED)
    return found, proofs


def line(proof: Proof) -> str:
    """Return the line of an obligation: the claim, its verdict, and the numbers or the reason."""
    numbers = ", ".join(f"{name} = {value}" for name, value in proof.numbers.items())
    if proof.numbers:
        numbers = f"it does not hold for {numbers}"
    if proof.counterexample is not None:
        numbers = "; ".join(sentences(proof.counterexample.reasons))
    why = numbers or proof.reason
    ending = f": {why}" if why else ""
    took = f"{1000 * proof.seconds:.0f} ms"
    if proof.cases > 1:
        took = f"{took} for {proof.cases} steps"
    return f"{proof.verdict.value:8} {proof.id}, {proof.name} ({took}){ending}"


def covered(found: Outcome) -> str:
    """Say how many obligations have each verdict."""
    return ", ".join(f"{name} {value}" for name, value in found.coverage.items())
