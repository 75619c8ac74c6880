"""The last events of a watched engine, in words. They are put into words only when asked for."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

KEPT = 256
"""The number of events that are kept."""


class History:
    """The last `KEPT` events. `note` says what the event that runs now is about."""

    def __init__(self) -> None:
        self.events: deque[tuple[str, Any]] = deque(maxlen=KEPT)
        self.note: Any = None

    def end(self, what: str) -> None:
        """An event is over."""
        self.events.append((what, self.note))
        self.note = None

    def lines(self, count: int) -> Iterator[str]:
        """The last events, one line each."""
        for what, note in list(self.events)[-count:]:
            yield f"{what}({', '.join(_words(note))})"


def _words(note: Any) -> Iterator[str]:
    if isinstance(note, Mapping):
        for name, tokens in list(note.items())[:8]:
            yield f"{name}: {tokens}"
        if len(note) > 8:
            yield f"{len(note) - 8} more"
    elif note is not None:
        yield str(note)[:100]
