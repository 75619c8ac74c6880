"""Progress on standard error: a live line on a terminal, nothing elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console


class Progress(Protocol):
    """Receives two counts from time to time."""

    def __call__(self, done: int, other: int, /) -> None: ...


@contextmanager
def progress(text: str) -> Iterator[Progress]:
    """Shows `text` with the two counts filled in for its `{}`."""
    if not sys.stderr.isatty():
        yield lambda _done, _other: None
        return
    with Console(stderr=True).status(text.format(0, 0)) as status:
        yield lambda done, other: status.update(text.format(f"{done:,}", f"{other:,}"))
