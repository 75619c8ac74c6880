"""States as a few numbers, by sharing their parts (SPIN calls it COLLAPSE).

The parts of a state are its engines, the transfer of each request, what has ended on each engine,
and the number of failures. Each distinct part is stored once, with a number. A state is stored as
the numbers of its parts. Two states are equal if and only if these numbers are equal.
"""

from collections.abc import Sequence
from typing import Any

from kvproof.model.config import Cluster
from kvproof.model.config.sides import is_reverse, transfer_names
from kvproof.model.state import State

Parts = tuple[int, ...]
"""The numbers of a state's parts, in the order of `Collapse.split`."""


class Collapse:
    """The parts seen so far, and the codec that they define."""

    def __init__(self, cluster: Cluster) -> None:
        self.engines = [engine.name for engine in cluster.engines]
        names = transfer_names(cluster)
        if not cluster.follow_up_turns:
            names = [name for name in names if not is_reverse(name)]
        self.transfers = sorted(names)
        self.width = 2 * len(self.engines) + len(self.transfers) + 1
        self._sorted = sorted(range(len(self.engines)), key=self.engines.__getitem__)
        self.components: list[Any] = []
        self.numbers: dict[Any, int] = {}
        self._known: dict[int, int] = {}
        self._shared: dict[Any, Any] = {}
        self._kept: set[int] = set()

    def number(self, component: Any) -> int:
        """The number of a component; a new component is stored."""
        # Most often it is the same object: an event does not change most components.
        number = self._known.get(id(component))
        if number is not None and self.components[number] is component:
            return number
        number = self.numbers.get(component)
        if number is None:
            number = len(self.components)
            kept = self._share(component)
            self.components.append(kept)
            self.numbers[kept] = number
            self._known[id(kept)] = number
        return number

    def _share(self, value: Any) -> Any:
        """An equal value whose equal tuples of one type are the same object."""
        if not isinstance(value, tuple) or not value or id(value) in self._kept:
            return value
        parts = tuple(map(self._share, value))
        kind = type(value)
        made = kind(*parts) if hasattr(kind, "_fields") else parts
        # Tuples of two types may be equal, such as a Served and a pair of a name and a number.
        key = (kind, *(id(p) if isinstance(p, tuple) and p else (type(p), p) for p in parts))
        kept = self._shared.setdefault(key, made)
        self._kept.add(id(kept))
        return kept

    def split(self, state: State) -> list[Any]:
        """The parts of a state: its engines; the transfers by name, None where there is none; the
        ended jobs of each engine; and the failures."""
        transfers = dict.fromkeys(self.transfers) | {each.request: each for each in state.transfers}
        ended = [tuple(e for e in state.ended if e[0] == name) for name in self.engines]
        return [*state.engines, *transfers.values(), *ended, state.failures]

    def join(self, parts: Sequence[Any]) -> State:
        """The state with these parts."""
        count, end = len(self.engines), self.width - 1
        middle = end - count
        transfers = tuple(t for t in parts[count:middle] if t is not None)
        ended = tuple(job for place in self._sorted for job in parts[middle + place])
        return State(tuple(parts[:count]), transfers, ended, parts[end])

    def parts(self, state: State) -> Parts:
        """The numbers of the parts of a state."""
        return tuple(map(self.number, self.split(state)))

    def state(self, parts: Parts) -> State:
        """The state with these parts; equal parts are the same objects."""
        return self.join([self.components[number] for number in parts])
