"""`kvproof prove --discover`: Spacer finds an inductive invariant that implies one claim."""

import argparse

from kvproof.cli.finish import finish
from kvproof.model.errors import UsageError, unknown
from kvproof.model.finding import Finding
from kvproof.model.reference.rules import Rules
from kvproof.reports.output.proof import Discovered as DiscoveredOutput
from kvproof.reports.output.proof import DiscoveredClaim
from kvproof.reports.output.verdict import verdict_output
from kvproof.reports.screen import say
from kvproof.strategies.symbolic.induction import claimed
from kvproof.strategies.symbolic.spacer import Discovered, discover
from kvproof.strategies.verdict import Outcome

PROVING = ("obligation", "table", "certificates", "cross", "witness")
"""Options for the proofs of obligations."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--discover",
        metavar="CLAIM",
        help="find an inductive invariant that implies this claim",
    )
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        type=size,
        metavar="NAME=NUMBER",
        help=(
            "with --discover: fix a size (repeatable; required for sizes that are multiplied or "
            "divided by)"
        ),
    )


def size(text: str) -> tuple[str, int]:
    """A size from the command line."""
    name, _, number = text.partition("=")
    if not name or not number.isascii() or not number.isdecimal():
        raise UsageError(f"The size {text!r} is not a number. Use for example block_size=2.")
    return name, int(number)


def run(args: argparse.Namespace, rules: Rules) -> int:
    """Discover an invariant, and print it or the run that violates the claim."""
    if args.discover is None:
        raise UsageError(
            "--size needs a claim to discover. Use --discover CLAIM together with --size."
        )
    other = next((n for n in PROVING if getattr(args, n, None)), None)
    if other is not None:
        raise UsageError(f"--discover proves no obligations. Use it without --{other}.")
    if args.discover not in claimed():
        raise unknown("claim", args.discover, claimed())
    about = claimed()[args.discover]
    found = discover(about.system, about.claim, dict(args.size), rules, timeout_s=args.timeout_s)
    finding = Finding(about.id, (*found.run, f"this must be true: {about.name}"))
    outcome = Outcome(
        found.verdict,
        finding=finding if found.run else None,
        reason=found.reason,
        seconds=found.seconds,
    )

    def output(code: int) -> DiscoveredOutput:
        claim = DiscoveredClaim(
            claim=about.id,
            sizes=dict(args.size),
            invariant=found.invariant,
            run=found.run,
            walked=found.walked,
        )
        return verdict_output(
            DiscoveredOutput,
            outcome,
            code=code,
            faults=args.fault,
            machine="none",
            seed=args.seed,
            more={"discovered": claim},
        )

    def text() -> None:
        for line in (*found.invariant, *found.run):
            say(line)
        say(f"{found.verdict.value} - {_summary(found)} ({found.seconds:.1f} s)")

    return finish(args, found.verdict.exit_code, output, text)


def _summary(found: Discovered) -> str:
    if found.run:
        return f"a run of {len(found.run)} states violates the claim"
    if found.reason:
        return found.reason
    return (
        f"{len(found.invariant)} parts; inductive; implies the claim; true of {found.walked} "
        "states on random walks"
    )
