"""Progress on standard error: a live line on a terminal, nothing elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from kvproof.reports.screen import columns, console, one_line


class Progress(Protocol):
    """Receives two counts from time to time."""

    def __call__(self, done: int, other: int, /) -> None: ...


@contextmanager
def progress(text: str) -> Iterator[Progress]:
    """Shows `text` with the two counts filled in for its `{}`."""
    if not sys.stderr.isatty():
        yield lambda _done, _other: None
        return
    from rich.text import Text

    def line(done: int, other: int) -> Text:
        """The text beside the mark that turns, which takes two columns."""
        return Text(one_line(text.format(f"{done:,}", f"{other:,}"), columns(sys.stderr) - 2))

    with console(sys.stderr).status(line(0, 0)) as status:
        yield lambda done, other: status.update(line(done, other))
