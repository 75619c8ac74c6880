"""How a search of states runs, and where it ends.

A search expands one state after the other. Between two states it is cut if it has reached a limit
or if the user stops it.
"""

import resource
import sys
from collections.abc import Callable
from typing import NamedTuple

from kvproof.model import interruption
from kvproof.strategies.explorer.search_graph import SearchGraph
from kvproof.strategies.verdict import INTERRUPTED

Progress = Callable[[int, int], None]
"""Called regularly with the number of distinct states and the number of states still to expand."""


class Search:
    """A search that can be stopped between two states. `reached` has what it has reached so far;
    memory and progress are looked at each `look_states` expanded states."""

    reached: SearchGraph
    look_states: int

    @property
    def is_broken(self) -> bool:
        """Whether an invariant broke."""
        raise NotImplementedError

    @property
    def over(self) -> bool:
        """Whether all states are expanded, or an invariant broke."""
        return self.is_broken or self.expanded == self.states

    @property
    def states(self) -> int:
        """The number of distinct states so far."""
        return len(self.reached.parts)

    @property
    def expanded(self) -> int:
        """The number of states expanded so far."""
        return self.reached.expanded

    def expand(self) -> None:
        """Take every step from the next state."""
        raise NotImplementedError


class Limits(NamedTuple):
    """The limits at which a search is cut: distinct states, and memory of the process (MiB)."""

    states: int = 1_000_000
    memory_mib: int | None = None


def run(search: Search, limits: Limits, progress: Progress | None) -> str:
    """Expand states until the search is over or cut. Returns the reason of the cut, or an empty
    string."""
    reason = ""
    with interruption.stoppable(), interruption.held() as requested:
        while not search.over and not reason:
            search.expand()
            if search.states > limits.states:
                reason = f"the search was cut at {limits.states} states"
            if requested() and not search.over:
                reason = INTERRUPTED
            if search.expanded % search.look_states and not reason:
                continue
            if progress is not None:
                progress(search.states, search.states - search.expanded)
            if limits.memory_mib is not None and memory_mib() > limits.memory_mib:
                reason = f"the search was cut at {limits.memory_mib} MiB"
    return "" if search.over else reason


def memory_mib() -> int:
    """The peak memory of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (1024 * 1024 if sys.platform == "darwin" else 1024)
