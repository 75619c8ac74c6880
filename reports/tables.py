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
        rule = beside(["-" * wide for wide in widths], widths)
        head = [*_beside(self.headings, widths), *([rule] if self.rule else [])]
        return [head, *(list(_beside(row, widths)) for row in self.rows)]

    def widths(self, width: int) -> list[int] | None:
        """Return the width of each column, in columns of the terminal; None if no choice of them
        shows every word whole."""
        cut = list(zip(*(map(printable, row) for row in (self.headings, *self.rows)), strict=True))
        widths = [max(map(cells, column)) for column in cut]
        least = [max(_least(cell) for cell in column) for column in cut]
        room = width - GAP * (len(cut) - 1)
        if sum(least) > room:
            return None
        heights = [[1] * len(column) for column in cut]
        while sum(widths) > room:
            # The column whose narrowing adds the fewest lines gives one column away.
            narrower = {
                index: [len(folded(cell, widths[index] - 1, HANG)) for cell in column]
                for index, column in enumerate(cut)
                if widths[index] > least[index]
            }
            index = min(narrower, key=lambda i: (_lines(heights, i, narrower[i]), -widths[i]))
            widths[index] -= 1
            heights[index] = narrower[index]
        return widths


def _least(cell: str) -> int:
    """Return the narrowest column that shows every word of a cell whole."""
    first, *rest = map(cells, cell.split(" "))
    return max([first, *(wide + HANG for wide in rest)])


def _lines(heights: Sequence[list[int]], index: int, changed: list[int]) -> int:
    """Return the number of lines of a table in which one column has changed heights of its
    cells."""
    columns = [*heights[:index], changed, *heights[index + 1 :]]
    return sum(max(row) for row in zip(*columns, strict=True))


def _beside(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Return the lines of a row, its cells side by side."""
    parts = [folded(printable(cell), wide, HANG) for cell, wide in zip(row, widths, strict=True)]
    for line in zip_longest(*parts, fillvalue=""):
        yield beside(line, widths)


def beside(texts: Sequence[str], widths: Sequence[int]) -> str:
    """Return one line of texts side by side, each filled up with spaces to its width."""
    filled = (text + " " * (wide - cells(text)) for text, wide in zip(texts, widths, strict=True))
    return (" " * GAP).join(filled).rstrip()


def _block(headings: Sequence[str], row: Sequence[str], width: int) -> Iterator[str]:
    """Return the lines of a row on its own: its first cell, then a line for each other cell that is
    not empty."""
    yield from folded(printable(f"{headings[0]}: {row[0]}"), width)
    for heading, cell in zip(headings[1:], row[1:], strict=True):
        if cell:
            text = f"{heading}: {cell}" if heading else cell
            yield from folded(printable(f"    {text}"), width, hang=6)
