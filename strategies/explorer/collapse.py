"""States as single numbers, by sharing their components (SPIN calls it COLLAPSE).

The components of a state are its engines and its other fields. Each distinct component is stored
once, with a number. A state is stored as the numbers of its components, packed in one int. Two
states are equal if and only if their ints are equal. This module does not interpret components: the
codec is derived from the type `State`.
"""

from typing import Any

from kvproof.model.config import Cluster
from kvproof.model.state import State

BITS = 32
"""Bits for the number of a component. More than four billion components would not fit in memory."""

MASK = (1 << BITS) - 1

Parts = tuple[int, ...]
"""The numbers of a state's components: its engines, then its other fields in order."""


class Collapse:
    """The components seen so far, and the codec that they define."""

    def __init__(self, cluster: Cluster) -> None:
        self.engines = len(cluster.engines)
        self.width = self.engines + len(State._fields) - 1
        self.components: list[Any] = []
        self.numbers: dict[Any, int] = {}
        self._known: dict[int, int] = {}
        self._shared: dict[Any, Any] = {}

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
        if not isinstance(value, tuple) or not value:
            return value
        parts = tuple(map(self._share, value))
        kind = type(value)
        made = kind(*parts) if hasattr(kind, "_fields") else parts
        # Tuples of two types may be equal, such as a Served and a pair of a name and a number.
        key = (kind, *(id(p) if isinstance(p, tuple) and p else (type(p), p) for p in parts))
        return self._shared.setdefault(key, made)

    def parts(self, state: State) -> Parts:
        """The numbers of the components of a state."""
        return tuple(map(self.number, (*state.engines, *state[1:])))

    def state(self, parts: Parts) -> State:
        """The state with these components; equal components are the same objects."""
        found = [self.components[number] for number in parts]
        return State(tuple(found[: self.engines]), *found[self.engines :])

    def pack(self, parts: Parts) -> int:
        """One int for the whole state."""
        packed = 0
        for number in parts:
            packed = packed << BITS | number
        return packed

    def unpack(self, packed: int) -> Parts:
        """The numbers of the components in a packed state."""
        return tuple(packed >> BITS * place & MASK for place in reversed(range(self.width)))
