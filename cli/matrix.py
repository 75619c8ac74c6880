"""`kvproof matrix`: which engine finds which fault.

The first row has no fault, and no engine may find a violation there. At least one engine must find
each other row. Otherwise the exit code is 1.
"""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import UNSET

from kvproof.cli import parser as options
from kvproof.cli.explore import exhausted
from kvproof.cli.finish import finish
from kvproof.cli.machines import maker
from kvproof.cli.prove import proved
from kvproof.cli.sample import sampled
from kvproof.model import interruption
from kvproof.model.faults.fault import planted
from kvproof.model.faults.registry import FAULTS
from kvproof.proofs.solve import TIMEOUT_S
from kvproof.reports.output.many import EngineResult, Matrix, MatrixRow
from kvproof.reports.screen import say
from kvproof.strategies.explorer.running import Limits
from kvproof.strategies.verdict import INTERRUPTED, Outcome, Verdict

ENGINES = ("explore", "sample", "prove")
NO_FAULT = "(no fault)"


class FaultOutcome(NamedTuple):
    """One fault, the cluster in which it was searched, and the outcome of each engine."""

    name: str
    cluster: str
    outcomes: tuple[Outcome, ...]

    @property
    def verdict(self) -> Verdict:
        """VIOLATED if the engines are wrong about this row, UNKNOWN if they may be wrong."""
        verdicts = [outcome.verdict for outcome in self.outcomes]
        if self.name == NO_FAULT and Verdict.VIOLATED in verdicts:
            return Verdict.VIOLATED
        if self.name != NO_FAULT and Verdict.VIOLATED in verdicts:
            return Verdict.SAMPLED
        if Verdict.UNKNOWN in verdicts:
            return Verdict.UNKNOWN
        return Verdict.SAMPLED if self.name == NO_FAULT else Verdict.VIOLATED


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--config",
        metavar="NAME|FILE",
        help="one cluster for all faults (default: the preset of each fault)",
    )
    options.add_fault(parser, "run only this fault (repeatable; default: all)")
    options.add_sampling(parser)
    options.add_states_max(parser)


def run(args: argparse.Namespace) -> int:
    """Compute the table and print it."""
    rows: list[FaultOutcome] = []
    with interruption.stoppable() as interrupted:
        for row in _rows(args):
            rows.append(row)
    verdicts = [row.verdict for row in rows] + ([Verdict.UNKNOWN] if interrupted else [])
    worst = next((v for v in (Verdict.VIOLATED, Verdict.UNKNOWN) if v in verdicts), Verdict.SAMPLED)

    def output(code: int) -> Matrix:
        return Matrix(
            exit_code=code,
            verdict=worst.value,
            seed=args.seed,
            seconds=round(sum(o.seconds for row in rows for o in row.outcomes), 3),
            faults=tuple(map(_row, rows)),
            reason=INTERRUPTED if interrupted else UNSET,
        )

    def text() -> None:
        print_rows(rows)
        wrong = [row.name for row in rows if row.verdict is not Verdict.SAMPLED]
        say(f"Found by no engine, or found without a fault: {', '.join(wrong) or 'none'}.")
        if interrupted:
            say(f"UNKNOWN: {INTERRUPTED}; {len(_names(args)) - len(rows)} rows were not run")

    return finish(args, worst.exit_code, output, text)


def _rows(args: argparse.Namespace) -> Iterator[FaultOutcome]:
    for name in _names(args):
        faults = [] if name == NO_FAULT else [name]
        scope = argparse.Namespace(config=args.config, fault=faults, invariant=[])
        setup = options.setup(scope)
        with planted(*setup.faults):
            proofs = proved(None, TIMEOUT_S)[0]
        outcomes = (
            exhausted(setup, Limits(args.states_max))[0],
            sampled(setup, maker("model"), args),
            proofs,
        )
        yield FaultOutcome(name, setup.cluster.name, outcomes)
        if any(outcome.reason == INTERRUPTED for outcome in outcomes):
            raise KeyboardInterrupt


def _names(args: argparse.Namespace) -> list[str]:
    """The rows of the table."""
    return args.fault or [NO_FAULT, *FAULTS]


def print_rows(rows: list[FaultOutcome]) -> None:
    """Print a block for each row: what each engine found, with the length of its trace."""
    for row in rows:
        say(f"{row.name} (cluster {row.cluster})")
        for engine, outcome in zip(ENGINES, row.outcomes, strict=True):
            say(f"    {engine:8} {_cell(outcome)}", hang=13)


def _cell(outcome: Outcome) -> str:
    if outcome.verdict is not Verdict.VIOLATED or outcome.finding is None:
        return "-" if outcome.verdict is not Verdict.UNKNOWN else f"UNKNOWN: {outcome.reason}"
    length = f"{len(outcome.events)} events: " if outcome.events else ""
    return f"{length}{outcome.finding.invariant}"


def _row(row: FaultOutcome) -> MatrixRow:
    explore, sample, prove = (
        EngineResult(
            verdict=outcome.verdict.value,
            invariant=outcome.finding.invariant if outcome.finding else None,
            trace_length=len(outcome.events),
            seconds=round(outcome.seconds, 3),
        )
        for outcome in row.outcomes
    )
    return MatrixRow(name=row.name, config=row.cluster, explore=explore, sample=sample, prove=prove)
