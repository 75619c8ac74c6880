"""`kvproof prove --witness`: turn the numbers of a counterexample into a run of the model, and
write its trace."""

import argparse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kvproof.cli import parser as options
from kvproof.cli.answer import trace_file, traced
from kvproof.cli.finish import File
from kvproof.cli.machines import maker
from kvproof.model import interruption
from kvproof.model.errors import UsageError
from kvproof.model.faults.fault import Fault
from kvproof.model.faults.registry import fault_named
from kvproof.model.files.reading import shown
from kvproof.proofs.proof import Proof
from kvproof.proofs.witness import WitnessResult, witness
from kvproof.reports.output.proof import WitnessRun
from kvproof.strategies.verdict import Verdict


class Attempt(NamedTuple):
    """The result for one refuted obligation: its run, and the file of its trace if there is one."""

    proof: Proof
    witness: WitnessResult
    file: File | None


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
    """The refuted obligations up to the first one with a run. If the user interrupts this search,
    those so far."""
    faults = [fault_named(name) for name in args.fault]
    attempts = []
    for proof in proofs if args.witness else ():
        if proof.verdict is not Verdict.VIOLATED:
            continue
        with interruption.stoppable() as stopped:
            interruption.check()
            found = witness(proof, faults)
        if stopped:
            break
        attempts.append(Attempt(proof, found, _file(args, found, faults)))
        if found.finding is not None:
            break
    return attempts


def _file(args: argparse.Namespace, found: WitnessResult, faults: Sequence[Fault]) -> File | None:
    if found.cluster is None:
        return None
    setup = options.Setup(found.cluster, tuple(faults), None)
    trace = traced(setup, maker("model"), found.outcome, args.seed)
    return trace_file(trace, args.traces) if trace else None


def lines(attempts: Sequence[Attempt]) -> Iterator[str]:
    """One line for each run, or the reason why there is none."""
    for proof, found, _ in attempts:
        if found.finding is None:
            yield f"no run for {proof.id}: {found.reason}"
            continue
        changed = f" ({'; '.join(found.changes)})" if found.changes else ""
        yield (
            f"the numbers of {proof.id}{changed} as a run of {len(found.events)} "
            f"events: {found.finding.invariant}, {found.finding.sentence}"
        )


def outputs(attempts: Sequence[Attempt]) -> tuple[WitnessRun, ...]:
    """The same for `--json`, after the traces were written."""
    return tuple(
        WitnessRun(
            obligation=proof.id,
            invariant=found.finding.invariant if found.finding else None,
            reasons=found.finding.sentences if found.finding else (),
            changes=found.changes,
            impossible=found.impossible,
            reason=found.reason,
            trace=shown(file.path) if file and file.path else None,
        )
        for proof, found, file in attempts
    )
