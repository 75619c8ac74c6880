"""How a search of states runs: its limits, its file, its end.

A search expands one state after the other. It is looked at between two of them: it may have come to
a limit, the user may end it, and its file is written now and then.
"""

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from kvproof.model import interruption
from kvproof.model.errors import UsageError
from kvproof.strategies.explorer import checkpoint
from kvproof.strategies.verdict import INTERRUPTED

Progress = Callable[[int, int], None]
"""Called regularly with the number of distinct states and the number of states still to expand."""


class Expanding(Protocol):
    """A search that can be stopped between two states and continued."""

    look_states: int
    """The number of states expanded between two checks of clock, memory and progress."""

    @property
    def over(self) -> bool:
        """Whether all states are expanded, or an invariant broke."""

    @property
    def states(self) -> int:
        """The number of distinct states so far."""

    @property
    def expanded(self) -> int:
        """The number of states expanded so far."""

    def expand(self) -> None:
        """Take every step from the next state."""

    def saved(self) -> msgspec.Struct:
        """What was reached, for the file of the search."""


class Limits(NamedTuple):
    """The limits at which a search is cut: distinct states, and memory of the process (MiB)."""

    states: int = 1_000_000
    memory_mib: int | None = None


@dataclass
class Checkpoint:
    """The file of a search, whether the search resumes from it, and how often it is written. A file
    that cannot be written does not end the search: `error` says why the last write failed. `states`
    is the number of states that a resumed search began with. `written` is whether this search has
    written the file."""

    path: Path
    resume: bool = False
    every_s: float = 30.0
    error: str = field(default="", init=False)
    states: int = field(default=0, init=False)
    written: bool = field(default=False, init=False)

    def write(self, about: checkpoint.Scope, reached: msgspec.Struct) -> None:
        """Write the search to the file."""
        try:
            first = not (self.resume or self.written)
            checkpoint.save(self.path, about, reached, first=first)
            self.error, self.written = "", True
        except UsageError as error:
            self.error = str(error)

    def check(self) -> None:
        """Raise UsageError if the last write failed."""
        if self.error:
            raise UsageError(self.error)


def run(
    search: Expanding,
    limits: Limits,
    progress: Progress | None,
    kept: Checkpoint | None,
    about: checkpoint.Scope,
) -> str:
    """Expand states until the search is over or cut. Returns the reason of the cut, or an empty
    string."""
    saved_at = time.monotonic()
    with interruption.held() as requested:
        cut = f"the search was cut at {limits.states} states"
        # One that continues from a checkpoint may have been cut there already.
        reason = cut if search.states > limits.states else ""
        while not search.over and not reason:
            search.expand()
            if search.states > limits.states:
                reason = cut
            if requested() and not search.over:
                reason = INTERRUPTED
            if search.expanded % search.look_states and not reason:
                continue
            if progress is not None:
                progress(search.states, search.states - search.expanded)
            if limits.memory_mib is not None and memory_mib() > limits.memory_mib:
                reason = f"the search was cut at {limits.memory_mib} MiB"
            if kept is not None and (reason or time.monotonic() - saved_at > kept.every_s):
                kept.write(about, search.saved())
                saved_at = time.monotonic()
        if kept is not None and not reason:
            kept.write(about, search.saved())
        if requested():
            interruption.caught()
    return "" if search.over else reason


def memory_mib() -> int:
    """The peak memory of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1024 * 1024 if sys.platform == "darwin" else 1024)
