"""What of vLLM a run reaches in the changed files, and in which of its steps. These files are
imported with calls that say what is executed (`probes`): a trace function for the whole run makes
it take twice as long.
"""

import builtins
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kvproof.gate.difference.result import Near
from kvproof.gate.source import probes
from kvproof.gate.source.outcomes import outcome
from kvproof.gate.source.probes import Probes
from kvproof.gate.source.statements import RUNS

CONSTRUCTORS = tuple(f".{name}{RUNS}" for name in ("__init__", "__post_init__"))
"""How the keys of functions end that make an object. What they do acts as long as the object is
used, so each later step of a cluster is near them. Plans have engines of their own: what the
constructor of one did says nothing of the next."""


class Reached:
    """What runs have reached so far: keys as in `Places`. `near` has the steps in which each
    changed function executed what is changed in it, by the key of the function."""

    def __init__(self, of: Probes, of_cluster: bool = False) -> None:
        self.keys: frozenset[str] = frozenset()
        self.near: dict[str, Near] = {}
        self._of = of
        self._ran: set[int] = set()
        self._values: set[tuple[str, bool]] = set()
        self._seen: dict[str, Counter[str]] = {}
        self._made: set[str] = set()
        self._of_cluster = of_cluster

    def note(self, abstract_steps: Iterable[str]) -> None:
        """What was executed since the last note is one step, with these abstract steps."""
        shown = ("", *{*abstract_steps})
        ran = {key for key in self._take() if key.endswith(RUNS)}
        if self._of_cluster:
            self._made.update(key for key in ran if key.endswith(CONSTRUCTORS))
        for key in ran | self._made:
            self._seen.setdefault(key, Counter()).update(shown)

    def _take(self) -> set[str]:
        """The keys of what was executed since the last time."""
        # Threads may go on meanwhile.
        ran, values = set(self._ran), set(self._values)
        self._ran -= ran
        self._values -= values
        now = {key for number in ran for key in self._of.keys[number]}
        now.update(outcome(key, value) for key, value in values)
        self.keys |= now
        return now

    def begin(self) -> None:
        """From now on, what is executed is noted."""
        setattr(builtins, probes.RAN, self._ran.add)
        setattr(builtins, probes.VALUED, self._value)

    def end(self) -> None:
        """All runs are over."""
        probes.idle()
        self._take()
        self.near = {
            key.removesuffix(RUNS): Near(counts.pop(""), dict(counts))
            for key, counts in self._seen.items()
        }

    def _value(self, key: str, value: Any) -> Any:
        """Note whether an operand is true. What has no truth value raises its exception in vLLM."""
        with suppress(Exception):
            self._values.add((key, bool(value)))
        return value


@contextmanager
def reached(of: Probes, of_cluster: bool = False) -> Iterator[Reached]:
    """Record what is reached in the block in the files that were imported with these probes. All of
    the block may be runs of one cluster. What was reached is known after the block."""
    found = Reached(of, of_cluster)
    found.begin()
    try:
        yield found
    finally:
        found.end()
