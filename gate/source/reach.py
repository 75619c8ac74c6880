"""What of vLLM a run reaches in the changed files. These are imported with calls that say what is
executed (`probes`): a trace function for the whole run makes it take twice as long."""

import builtins
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kvproof.gate.source import probes
from kvproof.gate.source.outcomes import outcome
from kvproof.gate.source.probes import Probes


class Reached:
    """What runs have reached when they are over: keys as in `Places`."""

    def __init__(self, of: Probes) -> None:
        self.keys: frozenset[str] = frozenset()
        self._of = of
        self._ran: set[int] = set()
        self._values: set[tuple[str, bool]] = set()

    def begin(self) -> None:
        """From now on, what is executed is noted."""
        setattr(builtins, probes.RAN, self._ran.add)
        setattr(builtins, probes.VALUED, self._value)

    def end(self) -> None:
        """All runs are over. Threads may go on meanwhile."""
        probes.idle()
        now = {key for number in set(self._ran) for key in self._of.keys[number]}
        self.keys = frozenset(now.union(outcome(*each) for each in set(self._values)))

    def _value(self, key: str, value: Any) -> Any:
        """Note whether an operand is true. What has no truth value raises its exception in vLLM."""
        with suppress(Exception):
            self._values.add((key, bool(value)))
        return value


@contextmanager
def reached(of: Probes) -> Iterator[Reached]:
    """Record what is reached in the block in the files that were imported with these probes. What
    was reached is known after the block."""
    found = Reached(of)
    found.begin()
    try:
        yield found
    finally:
        found.end()
