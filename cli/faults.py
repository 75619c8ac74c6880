"""`kvproof faults`: all historical mistakes that the reference can be given."""

import argparse

from kvproof.cli.finish import finish
from kvproof.model.faults.registry import FAULTS
from kvproof.reports.output.lists import FaultRow, Faults
from kvproof.reports.screen import say
from kvproof.strategies.witnesses import broken_by


def add_options(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Print the list."""
    rows = tuple(
        FaultRow(
            name=each.name,
            origin=each.origin,
            mistake=each.mistake,
            replaces=tuple(each.replaces),
            breaks=tuple(broken_by(each)),
            config=each.cluster,
        )
        for each in FAULTS.values()
    )

    def text() -> None:
        for row in rows:
            say(f"{row.name} ({row.origin})")
            say(f"    {row.mistake}", hang=6)
            say(f"    violates {', '.join(row.breaks)}", hang=6)
            say(f"    preset {row.config}; replaces {', '.join(row.replaces)}", hang=4)

    return finish(args, 0, lambda code: Faults(exit_code=code, faults=rows), text)
