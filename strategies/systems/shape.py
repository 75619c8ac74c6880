"""The shape of a `System`'s states, determined once: `flat` and `shaped` for columns, without
checking the types each time."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from kvproof.model.arithmetic.ranges import Range
from kvproof.model.arithmetic.system import Numbers


class Shape:
    """A tuple of numbers, or of such tuples."""

    def __init__(self, like: Numbers) -> None:
        parts = [None if _number(part) else Shape(part) for part in like]
        self._parts = parts
        self._length = len(parts)
        self._numbers_only = not any(parts)
        self._make = type(like)._make if hasattr(like, "_fields") else tuple

    def flat(self, state: Numbers) -> list[Any]:
        """The numbers of a state, in order."""
        if self._numbers_only:
            return list(state)
        numbers: list[Any] = []
        for shape, part in zip(self._parts, state, strict=True):
            numbers += [part] if shape is None else shape.flat(part)
        return numbers

    def filled(self, numbers: Iterator[Any]) -> Numbers:
        """The state with the next numbers in its places."""
        if self._numbers_only:
            return self._make(islice(numbers, self._length))
        parts = (next(numbers) if s is None else s.filled(numbers) for s in self._parts)
        return self._make(parts)


def _number(part: Numbers) -> bool:
    return isinstance(part, Range) or not isinstance(part, tuple)
