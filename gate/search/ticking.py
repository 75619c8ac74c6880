"""The live line of the gate: what it is doing, and for how many seconds of its budget. It moves
each second, also while nothing can be told, as in the import of vLLM."""

import sys
import threading
import time
from typing import Self

from kvproof.reports import live_line
from kvproof.reports.screen import clear, say

EVERY_S = 1.0


class Ticking:
    """The line of a gate that began at `begin`, by `time.monotonic`. In its body a thread shows it
    again each second."""

    def __init__(self, budget_s: float, begin: float) -> None:
        self.begin = begin
        self._budget_s = budget_s
        self._text = ""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def show(self, text: str) -> None:
        """Show this from now on."""
        self._text = text
        self._show()

    def say(self, text: str) -> None:
        """Print a line that stays, on standard error."""
        with self._lock:
            say(text, file=sys.stderr)

    def _show(self) -> None:
        with self._lock:
            spent_s = time.monotonic() - self.begin
            live_line.show(f"gate, {spent_s:.0f} of {self._budget_s:.0f} s: {self._text}")

    def _tick(self) -> None:
        while not self._ended.wait(EVERY_S):
            if self._text:
                self._show()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        clear()
