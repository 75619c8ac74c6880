"""`kvproof remedies`: the effect of each remedy that was proposed."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvproof.cli.finish import finish
from kvproof.reports.changes import value
from kvproof.reports.output.lists import Remedies, RemedyRow
from kvproof.reports.tables import TextTable

if TYPE_CHECKING:
    from kvproof.strategies.remedies import Remedy


def add_options(parser: argparse.ArgumentParser) -> None:
    """No options of its own."""


def run(args: argparse.Namespace) -> int:
    """Compute the table and print it."""
    from kvproof.strategies.remedies import table

    rows = list(table())
    remedies = tuple(RemedyRow(**row._asdict()) for row in rows)
    return finish(
        args,
        0,
        lambda code: Remedies(exit_code=code, remedies=remedies),
        lambda: _print(rows),
    )


def _print(rows: "Sequence[Remedy]") -> None:
    headings = tuple(name.replace("_", " ") for name in rows[0]._fields)
    shown = TextTable(headings, tuple(tuple(map(value, row)) for row in rows))
    shown.show()
