"""This module keeps a few values for each block."""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class Several(Generic[Value]):
    """Keep the values of each block. Most blocks have none or one, which is kept as it is: a list
    each would be one more object for Python's garbage collector to look at."""

    def __init__(self, blocks: int) -> None:
        self._of: list[Any] = [None] * (blocks + 1)  # the last is for the id -1

    def __iter__(self) -> Iterator[int]:
        return (number for number, found in enumerate(self._of) if found is not None)

    def of(self, block: int) -> tuple[Value, ...]:
        """Return the values of a block, in the order in which they came."""
        found = self._of[block]
        if found is None:
            return ()
        return found if isinstance(found, tuple) else (found,)

    def has_one(self, block: int) -> bool:
        """Whether a block has exactly one value."""
        found = self._of[block]
        return found is not None and not isinstance(found, tuple)

    def put(self, block: int, value: Value) -> None:
        """Add this value to a block, unless the block has it."""
        if self._of[block] is None:
            self._of[block] = value
        elif value not in self.of(block):
            self.add((block,), value)

    def add(self, blocks: Iterable[int], value: Value) -> None:
        """Add this value to each of these blocks, also a second time."""
        of = self._of
        for block in blocks:
            found = of[block]
            if found is None:
                of[block] = value
            else:
                of[block] = (*self.of(block), value)

    def remove(self, blocks: Iterable[int], value: Value) -> None:
        """Remove this value once from each of these blocks that has it."""
        of = self._of
        for block in blocks:
            found = of[block]
            if found == value:
                of[block] = None
            elif isinstance(found, tuple) and value in found:
                left = list(found)
                left.remove(value)
                of[block] = tuple(left) if len(left) > 1 else left[0]

    def clear(self) -> None:
        """Remove all values."""
        self._of = [None] * len(self._of)
