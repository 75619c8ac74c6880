"""One live line on standard error says what the program is doing. Where that is no terminal, as in
the log of a CI, it is a line of its own every half minute."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kvproof.model import interruption
from kvproof.reports import screen
from kvproof.reports.screen import clear, columns, one_line

SHORTER = "Looking for a shorter run; Ctrl-C takes the shortest so far."
"""What follows a violation that is shown before its run is shrunk."""

LINE_EVERY_S = 30.0
"""The time between two lines of a log, in seconds."""

SHOWN_EVERY_S = 0.1
"""The time after which progress is shown again, in seconds."""

_logged_at = time.monotonic()


def show(text: str) -> None:
    """Show this instead of the line before. Where the terminal is too narrow, the end is left
    out. What others print, as vLLM does, begins at the beginning of the line."""
    global _logged_at
    clear()
    if wanted():
        sys.stderr.write(one_line(text, columns() - 1) + "\r")
        sys.stderr.flush()
        screen.live_line_shown = True
    elif time.monotonic() - _logged_at > LINE_EVERY_S:
        _logged_at = time.monotonic()
        print(text, file=sys.stderr, flush=True)


def wanted() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr.isatty()


ProgressReporter = Callable[[int, int], None]
"""Receives two counts from time to time."""


@contextmanager
def progress(text: str) -> Iterator[ProgressReporter]:
    """Show `text`, with the two counts filled in for its `{}`, while work runs."""
    shown_at = 0.0

    def report(done: int, other: int) -> None:
        nonlocal shown_at
        interruption.check()
        if time.monotonic() - shown_at > SHOWN_EVERY_S:
            show(text.format(f"{done:,}", f"{other:,}"))
            shown_at = time.monotonic()

    show(text.partition(":")[0])
    try:
        yield report
    finally:
        clear()
