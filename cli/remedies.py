"""`kvproof remedies`: the effect of each remedy that was proposed."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

from kvproof.cli.finish import finish
from kvproof.reports.changes import value

if TYPE_CHECKING:
    from kvproof.strategies.remedies import Remedy

HELP = "compare the remedies that were proposed for the open problems"


def add_options(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Compute the table and print it."""
    from kvproof.strategies.remedies import table

    rows = list(table())
    remedies = [row._asdict() for row in rows]
    return finish(
        args,
        0,
        lambda code: {"command": "remedies", "exit_code": code, "remedies": remedies},
        lambda: _print(rows),
    )


def _print(rows: "Sequence[Remedy]") -> None:
    shown = Table(box=box.SIMPLE)
    for field in rows[0]._fields if rows else ():
        shown.add_column(field.replace("_", " "), overflow="fold")
    for row in rows:
        shown.add_row(*(value(field) for field in row))
    Console(width=100, highlight=False).print(shown)
