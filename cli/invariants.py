"""`kvproof invariants`: all invariants, and the guards of the spec."""

import argparse

from kvproof.cli.finish import finish
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.spec.registry import GUARDS
from kvproof.reports.output.lists import GuardRow, InvariantRow, Invariants
from kvproof.reports.screen import say

GUARDS_OF_THE_SPEC = "Guards of the spec: rules that every step must keep"


def add_options(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    rows = tuple(
        InvariantRow(
            id=each.id,
            name=each.name,
            kind=each.kind,
            severity=each.severity.words if each.severity else None,
            origin=each.origin,
            killed_by=each.killed_by,
        )
        for each in INVARIANTS.values()
    )
    guards = tuple(
        GuardRow(
            id=guard.id,
            name=guard.name,
            part=guard.part,
            severity=guard.severity.words,
        )
        for guard in GUARDS.values()
    )

    def text() -> None:
        for row in rows:
            say(f"{row.id} ({row.severity}, {row.kind}, {row.origin})")
            say(f"    {row.name}", hang=6)
            say(f"    killed by: kvproof explore --fault {row.killed_by}", hang=6)
        say()
        say(GUARDS_OF_THE_SPEC)
        for guard in guards:
            say(f"{guard.id} ({guard.severity}, {guard.part})")
            say(f"    {guard.name}", hang=6)

    return finish(
        args, 0, lambda code: Invariants(exit_code=code, invariants=rows, guards=guards), text
    )
