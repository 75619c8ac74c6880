"""`kvproof prove --witness`: refuting numbers, turned into a run of the model that is kept."""

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kvproof.cli import parser as options
from kvproof.cli.answer import Kept, keep
from kvproof.cli.machines import maker
from kvproof.model.errors import UsageError
from kvproof.model.faults.fault import Fault, rules_with
from kvproof.model.faults.registry import fault_named
from kvproof.strategies.symbolic.proof import Proof
from kvproof.strategies.symbolic.witness import Witness, witness
from kvproof.strategies.verdict import Verdict


class Told(NamedTuple):
    """What became of one refuted obligation: its run, and the file that is in, if there is one."""

    proof: Proof
    witness: Witness
    kept: Kept | None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--witness",
        action="store_true",
        help="turn the first refuting numbers that can be into a run of the model, and keep it",
    )
    options.add_traces(parser)


def prepare(args: argparse.Namespace) -> None:
    """Raises UsageError where no fault is named that a run could break something with."""
    if args.witness and not args.fault:
        raise UsageError(
            "A witness is a run of the model with a fault, and no fault is named. "
            "Write --fault NAME beside --witness."
        )


def run(args: argparse.Namespace, proofs: Sequence[Proof]) -> list[Told]:
    """The refuted obligations up to the first that has a run. Its trace is written."""
    faults = [fault_named(name) for name in args.fault]
    told = []
    for proof in proofs if args.witness else ():
        if proof.verdict is not Verdict.VIOLATED:
            continue
        found = witness(proof, faults)
        told.append(Told(proof, found, _kept(args, found, faults)))
        if found.finding is not None:
            break
    return told


def _kept(args: argparse.Namespace, found: Witness, faults: Sequence[Fault]) -> Kept | None:
    if found.cluster is None:
        return None
    rules = rules_with(faults)
    setup = options.Setup(found.cluster, tuple(faults), rules, None)
    return keep(setup, maker("model", rules), found.outcome, args.seed, args.traces)


def lines(told: Sequence[Told]) -> Iterator[str]:
    """The runs, each in a line, and why there is none where there is none."""
    for proof, found, kept in told:
        if found.finding is None:
            yield f"no run for {proof.id}: {found.reason}"
            continue
        where = f", in {kept.path}" if kept else ""
        changed = f" ({'; '.join(found.changes)})" if found.changes else ""
        yield (
            f"the numbers of {proof.id}{changed}, as a run of {len(found.events)} events{where}: "
            f"{found.finding.invariant}, {found.finding.sentence}"
        )


def as_objects(told: Sequence[Told]) -> list[dict[str, object]]:
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
        for proof, found, kept in told
    ]
