"""`kvproof remedies`: the effect of each remedy that was proposed."""

import argparse

from kvproof.cli.answer import print_json
from kvproof.reports.changes import value
from kvproof.reports.screen import columns
from kvproof.reports.tables import Table


def add_options(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Compute the table and print it."""
    from kvproof.strategies.remedies import table

    rows = list(table())
    if args.json:
        remedies = [row._asdict() for row in rows]
        print_json({"command": "remedies", "exit_code": 0, "remedies": remedies})
        return 0
    headings = tuple(name.replace("_", " ") for name in rows[0]._fields)
    shown = Table(headings, tuple(tuple(map(value, row)) for row in rows))
    print("\n".join(shown.lines(columns())))
    return 0
