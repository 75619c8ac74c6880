"""`kvproof prove --witness`: turn the numbers of a counterexample into a run of the model, and
write its trace."""

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kvproof.cli import parser as options
from kvproof.cli.answer import Kept, keep
from kvproof.cli.machines import maker
from kvproof.model.errors import UsageError
from kvproof.model.faults.fault import Fault, rules_with
from kvproof.model.faults.registry import fault_named
from kvproof.model.files.reading import shown
from kvproof.strategies.symbolic.proof import Proof
from kvproof.strategies.symbolic.witness import Witness, witness
from kvproof.strategies.verdict import Verdict


class Attempt(NamedTuple):
    """The result for one refuted obligation: its run, and the trace file if there is one."""

    proof: Proof
    witness: Witness
    kept: Kept | None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--witness",
        action="store_true",
        help=(
            "turn the first counterexample that allows it into a run of the model, and write its "
            "trace"
        ),
    )
    options.add_traces(parser)


def prepare(args: argparse.Namespace) -> None:
    """Raises UsageError if no fault is given: without a fault, no run violates anything."""
    if args.witness and not args.fault:
        raise UsageError(
            "A witness is a run of the model with a fault, and no fault is given. Use "
            "--fault NAME together with --witness."
        )


def run(args: argparse.Namespace, proofs: Sequence[Proof]) -> list[Attempt]:
    """The refuted obligations up to the first one with a run. Its trace is written."""
    faults = [fault_named(name) for name in args.fault]
    attempts = []
    for proof in proofs if args.witness else ():
        if proof.verdict is not Verdict.VIOLATED:
            continue
        found = witness(proof, faults)
        attempts.append(Attempt(proof, found, _kept(args, found, faults)))
        if found.finding is not None:
            break
    return attempts


def _kept(args: argparse.Namespace, found: Witness, faults: Sequence[Fault]) -> Kept | None:
    if found.cluster is None:
        return None
    rules = rules_with(faults)
    setup = options.Setup(found.cluster, tuple(faults), rules, None)
    return keep(setup, maker("model", rules), found.outcome, args.seed, args.traces)


def lines(attempts: Sequence[Attempt]) -> Iterator[str]:
    """One line for each run, or the reason why there is none."""
    for proof, found, kept in attempts:
        if found.finding is None:
            yield f"no run for {proof.id}: {found.reason}"
            continue
        where = f", in {shown(kept.path)}" if kept else ""
        changed = f" ({'; '.join(found.changes)})" if found.changes else ""
        yield (
            f"the numbers of {proof.id}{changed} as a run of {len(found.events)} "
            f"events{where}: {found.finding.invariant}, {found.finding.sentence}"
        )


def as_objects(attempts: Sequence[Attempt]) -> list[dict[str, object]]:
    """The same as plain data."""
    return [
        {
            "obligation": proof.id,
            "invariant": found.finding.invariant if found.finding else None,
            "reasons": list(found.finding.reasons) if found.finding else [],
            "changes": list(found.changes),
            "impossible": found.impossible,
            "reason": found.reason,
            "trace": str(kept.path) if kept else None,
        }
        for proof, found, kept in attempts
    ]
