"""`kvproof prove --discover`: an invariant that implies one claim, found by Spacer."""

import argparse

from kvproof.cli.answer import print_json
from kvproof.model.errors import UsageError, unknown
from kvproof.model.finding import Finding
from kvproof.model.reference.rules import Rules
from kvproof.reports.verdict_json import verdict_object
from kvproof.strategies.symbolic.induction import claimed
from kvproof.strategies.symbolic.spacer import Discovered, discover
from kvproof.strategies.verdict import Outcome

PROVING = ("obligation", "table", "certificates", "cross", "witness")
"""Options about obligations that are proved."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--discover",
        metavar="CLAIM",
        help="find an invariant that implies this claim, from the claim alone",
    )
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        type=size,
        metavar="NAME=NUMBER",
        help="of --discover: fix a size (repeatable; those multiplied or divided by must be)",
    )


def size(text: str) -> tuple[str, int]:
    """A size given on the command line."""
    name, _, number = text.partition("=")
    if not name or not number.isascii() or not number.isdecimal():
        raise UsageError(f"The size {text!r} is no number. Write for example block_size=2.")
    return name, int(number)


def run(args: argparse.Namespace, rules: Rules) -> int:
    """Discover, and print the invariant or the run."""
    if args.discover is None:
        raise UsageError("A size is fixed for --discover only. Write --discover CLAIM too.")
    other = next((n for n in PROVING if getattr(args, n, None)), None)
    if other is not None:
        raise UsageError(f"--discover proves no obligations. Write it without --{other}.")
    if args.discover not in claimed():
        raise unknown("claim", args.discover, claimed())
    about = claimed()[args.discover]
    found = discover(about.system, about.claim, rules, dict(args.size), args.timeout_s)
    finding = Finding(about.id, (*found.run, f"this must be true: {about.name}"))
    outcome = Outcome(
        found.verdict,
        finding=finding if found.run else None,
        reason=found.reason,
        seconds=found.seconds,
    )
    if args.json:
        record = verdict_object("prove", outcome, faults=args.fault, machine="none", seed=args.seed)
        found_object = {"claim": about.id, "sizes": dict(args.size)} | {
            name: getattr(found, name) for name in ("invariant", "run", "walked")
        }
        print_json(record | {"discovered": found_object})
        return found.verdict.exit_code
    for line in (*found.invariant, *found.run):
        print(line)
    print(f"{found.verdict.value} - {_told(found)} ({found.seconds:.1f} s)")
    return found.verdict.exit_code


def _told(found: Discovered) -> str:
    if found.run:
        return f"a run of {len(found.run)} states breaks the claim"
    if found.reason:
        return found.reason
    return (
        f"{len(found.invariant)} parts, inductive, implying the claim, and true of "
        f"{found.walked} states on random walks"
    )
