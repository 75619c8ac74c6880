"""Progress: the live line on standard error, while work runs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from kvproof.model import interruption
from kvproof.reports import live_line

SHOWN_EVERY_S = 0.1


class ProgressReporter(Protocol):
    """Receives two counts from time to time."""

    def __call__(self, done: int, other: int, /) -> None: ...


@contextmanager
def progress(text: str) -> Iterator[ProgressReporter]:
    """Shows `text` with the two counts filled in for its `{}`."""
    shown_at = 0.0

    def show(done: int, other: int) -> None:
        nonlocal shown_at
        interruption.raise_missed()
        if time.monotonic() - shown_at > SHOWN_EVERY_S:
            live_line.show(text.format(f"{done:,}", f"{other:,}"))
            shown_at = time.monotonic()

    live_line.show(text.partition(":")[0])
    try:
        yield show
    finally:
        live_line.clear()
