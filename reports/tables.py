"""This module makes tables of text: columns that fit the width, or one block for each row where
they do not."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from kvproof.model.files.reading import printable
from kvproof.reports.screen import cells, columns, folded, say

GAP = 2
"""The columns between two columns of a table."""

HANG = 2
"""The column of a cell in which its further lines begin."""


class TextTable(NamedTuple):
    """The headings, and the rows of as many cells. A cell is text of one line. `rule` is whether a
    line lies under the headings."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    rule: bool = True

    def lines(self, width: int) -> list[str]:
        """Return the lines of the headings and of all rows."""
        head, *rows = self.row_lines(width)
        return [*head, *(line for row in rows for line in row)]

    def show(self) -> None:
        """Print the table on standard output, in its width."""
        for line in self.lines(columns()):
            say(line, hang=0)

    def row_lines(self, width: int) -> list[list[str]]:
        """Return the lines of the headings (none where each row is a block), then those of each
        row."""
        widths = self.widths(width)
        if widths is None:
            return [[], *(list(_block(self.headings, row, width)) for row in self.rows)]
        rule = [*_beside(["-" * wide for wide in widths], widths)] if self.rule else []
        head = [*_beside(self.headings, widths), *rule]
        return [head, *(list(_beside(row, widths)) for row in self.rows)]

    def widths(self, width: int) -> list[int] | None:
        """Return the width of each column, in columns of the terminal. Where the table is too wide,
        the widest column is folded; None if it would not show every word whole then."""
        cut = list(zip(*(map(printable, row) for row in (self.headings, *self.rows)), strict=True))
        widths = [max(map(cells, column)) for column in cut]
        widest = widths.index(max(widths))
        over = sum(widths) + GAP * (len(cut) - 1) - width
        if over > 0:
            widths[widest] -= over
            if widths[widest] < max(map(_least, cut[widest])):
                return None
        return widths


def _least(cell: str) -> int:
    """Return the narrowest column that shows every word of a cell whole."""
    first, *rest = map(cells, cell.split(" "))
    return max([first, *(wide + HANG for wide in rest)])


def _beside(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Return the lines of a row, its cells side by side, each filled up with spaces."""
    parts = [folded(printable(cell), wide, HANG) for cell, wide in zip(row, widths, strict=True)]
    for line in zip_longest(*parts, fillvalue=""):
        filled = (
            cell + " " * (wide - cells(cell)) for cell, wide in zip(line, widths, strict=True)
        )
        yield (" " * GAP).join(filled).rstrip()


def _block(headings: Sequence[str], row: Sequence[str], width: int) -> Iterator[str]:
    """Return the lines of a row on its own: its first cell, then a line for each other cell that is
    not empty."""
    yield from folded(printable(f"{headings[0]}: {row[0]}"), width)
    for heading, cell in zip(headings[1:], row[1:], strict=True):
        if cell:
            text = f"{heading}: {cell}" if heading else cell
            yield from folded(printable(f"    {text}"), width, hang=6)
