"""`kvproof remedies`: the effect of each remedy that was proposed."""

import argparse

from rich import box
from rich.console import Console
from rich.table import Table

from kvproof.cli.answer import print_json
from kvproof.reports.changes import value


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
    shown = Table(box=box.SIMPLE)
    for field in rows[0]._fields if rows else ():
        shown.add_column(field.replace("_", " "), overflow="fold")
    for row in rows:
        shown.add_row(*(value(field) for field in row))
    Console(width=100, highlight=False).print(shown)
    return 0
