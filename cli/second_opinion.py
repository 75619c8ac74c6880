"""`kvproof prove` with a second opinion: write certificates, and check the proofs with cvc5."""

import argparse
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kvproof.cli.finish import File
from kvproof.model import interruption
from kvproof.model.files.folders import check_empty
from kvproof.model.files.reading import shown
from kvproof.model.reference.rules import Rules
from kvproof.reports.output.proof import OpinionCounts, SecondOpinion
from kvproof.strategies.symbolic.certificate import questions, write_certificates
from kvproof.strategies.symbolic.cross import AGREES, DISAGREES, UNKNOWN, solver_library
from kvproof.strategies.symbolic.proof import Proof
from kvproof.strategies.symbolic.second_opinion import (
    FINDING,
    Checked,
    counts_by_answer,
    cross_check,
    with_opinions,
)
from kvproof.strategies.verdict import INTERRUPTED, Outcome, Verdict


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--certificates",
        type=Path,
        metavar="DIR",
        help="write each Z3 query as an SMT-LIB file into this new folder",
    )
    parser.add_argument(
        "--cross",
        action="store_true",
        help="also check all proofs of Z3 with cvc5 (needs kvproof[cross])",
    )


def prepare(args: argparse.Namespace) -> None:
    """Raises UsageError if the certificates or the second opinion are not possible."""
    if args.cross:
        solver_library()
    if args.certificates is not None:
        list(questions(args.obligation or None))  # raises for an unknown id
        check_empty(args.certificates)


class Certificates(File):
    """The folder of certificates; `count` is the number of files, None if they were not written."""

    def __init__(self, folder: Path, names: Sequence[str] | None, rules: Rules) -> None:
        super().__init__(self._made, self._reported, whole=True)
        self.folder, self.rules, self.names = folder, rules, names
        self.count: int | None = None

    def _reported(self, path: Path) -> str:
        return f"{self.count} certificates are in {shown(path)}"

    def _made(self) -> Path:
        self.count = write_certificates(self.folder, self.rules, names=self.names)
        return self.folder


def opinions(
    args: argparse.Namespace, found: Outcome, proofs: Sequence[Proof], rules: Rules
) -> tuple[Outcome, dict[str, Checked]]:
    """The outcome with the results of cvc5, and these results by proof id; empty if they were not
    requested."""
    checked: list[Checked] = []
    with interruption.stoppable() as stopped:
        if args.cross:
            interruption.check()
            cross_check(proofs, rules, timeout_s=args.timeout_s, progress=checked.append)
    if stopped and found.verdict is not Verdict.VIOLATED:
        found = dataclasses.replace(found, verdict=Verdict.UNKNOWN, reason=INTERRUPTED)
    return with_opinions(found, checked), {each.id: each for each in checked}


def lines(
    args: argparse.Namespace, found: Outcome, checked: Mapping[str, Checked]
) -> Iterator[str]:
    """The lines after the obligations."""
    if args.cross:
        yield summary(checked)
    if found.finding is not None and found.finding.invariant == FINDING:
        yield found.finding.sentence


def summary(checked: Mapping[str, Checked]) -> str:
    """One line about all queries."""
    counts = counts_by_answer(list(checked.values()))
    seconds = sum(o.seconds for each in checked.values() for o in each.opinions.values())
    return (
        f"second opinion: of {counts['questions']} queries, cvc5 agrees on {counts[AGREES]}, "
        f"disagrees on {counts[DISAGREES]}, does not know {counts[UNKNOWN]} ({seconds:.1f} s)"
    )


def totals(checked: Mapping[str, Checked]) -> OpinionCounts:
    """The number of queries by cvc5's answer."""
    return OpinionCounts(**counts_by_answer(list(checked.values())))


def output(checked: Checked | None) -> SecondOpinion | None:
    """The result of cvc5 for one proof; None if it was not asked."""
    if checked is None:
        return None
    return SecondOpinion(
        solver="cvc5",
        answer=checked.answer,
        questions=len(checked.opinions),
        unknown=tuple(checked.names(UNKNOWN)),
        disagrees=tuple(checked.names(DISAGREES)),
        seconds=round(sum(o.seconds for o in checked.opinions.values()), 3),
    )
