"""This module makes tables of text."""

import io
from collections.abc import Iterator, Sequence

from kvproof.model.files.reading import printable
from kvproof.reports.screen import ScreenLine, console

GAP = 2
"""The columns between two columns of a table."""


def table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> Iterator[ScreenLine]:
    """Return the lines of a table. A cell for which there is no room is folded."""
    from rich.table import Table
    from rich.text import Text

    made = Table(*headings, box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    text = io.StringIO()
    console(text, width).print(made, soft_wrap=False)
    for line in text.getvalue().splitlines():
        yield ScreenLine(line.rstrip(), hang=0)
