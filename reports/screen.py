"""This module knows the width of a terminal, prints text literally, and breaks lines between words.

This is the only place that makes a console of rich. Markup, emoji codes and highlighting are off,
because a name of the user is never markup.
"""

import io
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TextIO

from kvproof.model.files.reading import printable

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 80
"""The columns where there is no terminal; every output is made for this width."""

WIDTH_MIN, WIDTH_MAX = 20, 1000
"""The narrowest and the widest terminal whose width is used, in columns."""

HEIGHT = 25
"""The lines of a console, on which nothing depends."""

HANG = 4
"""The column in which the further lines of a text begin, counted from 0."""

live_line_shown = False
"""Whether a live line (`live_line`) is on the terminal."""


def clear() -> None:
    """Remove the live line. This is called before anything else is written to a terminal."""
    global live_line_shown
    if live_line_shown:
        live_line_shown = False
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def columns() -> int:
    """Return the width of all outputs in columns: that of the environment variable COLUMNS, else
    that of the terminal, else 80."""
    width = shutil.get_terminal_size((WIDTH, HEIGHT)).columns
    return min(max(width, WIDTH_MIN), WIDTH_MAX)


def folds(file: TextIO | None = None) -> bool:
    """Whether `say` breaks lines: on a terminal, and where COLUMNS is set on standard output and
    standard error. Elsewhere a program may read the lines, and they stay whole."""
    file = sys.stdout if file is None else file
    return file.isatty() or (file in (sys.stdout, sys.stderr) and bool(os.environ.get("COLUMNS")))


def folded(text: str, width: int, hang: int = HANG) -> list[str]:
    """Return the lines of a text, each at most `width` columns; the further ones begin in column
    `hang`. Lines break between words alone: a longer word, such as a path, stays whole."""
    words = text.lstrip(" ")
    lines = textwrap.wrap(
        words,
        width,
        initial_indent=text[: len(text) - len(words)],
        subsequent_indent=" " * min(hang, width // 2),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines or [""]


def one_line(text: str, width: int) -> str:
    """Return the text in at most `width` columns, cut at the end if it is longer."""
    text = printable(text)
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


class ScreenLine(NamedTuple):
    """One text of a print: its style, and the column in which its further lines begin (0 if it is
    not folded)."""

    text: str = ""
    style: str = ""
    hang: int = HANG

    def folded(self, width: int) -> "list[ScreenLine]":
        """Return the lines that are printed, taken literally."""
        text = printable(self.text)
        parts = folded(text, width, self.hang) if self.hang else [text]
        return [ScreenLine(part, self.style) for part in parts]


def plain(lines: Iterable[ScreenLine], width: int) -> str:
    """Return lines as text of `width` columns, without colour."""
    return "".join(f"{part.text}\n" for line in lines for part in line.folded(width))


def show(file: TextIO, lines: Iterable[ScreenLine]) -> None:
    """Print lines in the width of the file: in colour on a terminal, elsewhere without."""
    from rich.text import Text

    clear()
    screen, width = console(file), columns()
    for line in lines:
        for part in line.folded(width):
            screen.print(Text(part.text, style=part.style))


def say(text: str = "", hang: int = HANG, file: TextIO | None = None) -> None:
    """Print one text, taken literally: in one line, or folded where `folds`; with a `hang` of 0 it
    is never folded, because it is to be copied."""
    clear()
    file = sys.stdout if file is None else file
    text = printable(text)
    for line in folded(text, columns(), hang) if hang and folds(file) else [text]:
        print(line, file=file)


def console(file: TextIO, width: int | None = None) -> "Console":
    """Make a console of rich on this output, of this width, or of its own. There are no colours
    where there is no terminal."""
    from rich.console import Console

    terminal = file.isatty()
    return Console(
        file=file,
        width=width or columns(),
        height=HEIGHT,
        force_terminal=terminal,
        color_system="auto" if terminal else None,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=True,
    )


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
