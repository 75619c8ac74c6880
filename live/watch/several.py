"""A few values for each block."""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class Several(Generic[Value]):
    """The values of each block that has some. Most have one, which is kept as it is: a list each
    would be one more object for Python's garbage collector to look at."""

    def __init__(self) -> None:
        self._of: dict[int, Any] = {}  # a value that is no tuple, or several values

    def __iter__(self) -> Iterator[int]:
        return iter(self._of)

    def of(self, block: int) -> tuple[Value, ...]:
        """The values of a block, in the order in which they came."""
        found = self._of.get(block)
        if found is None:
            return ()
        return found if isinstance(found, tuple) else (found,)

    def add(self, block: int, value: Value) -> None:
        """One more value of a block."""
        self._set(block, (*self.of(block), value))

    def remove(self, block: int, value: Value) -> None:
        """One of these values less, if the block has it."""
        left = list(self.of(block))
        if value in left:
            left.remove(value)
            self._set(block, tuple(left))

    def _set(self, block: int, values: tuple[Value, ...]) -> None:
        if not values:
            self._of.pop(block, None)
        elif len(values) == 1:
            self._of[block] = values[0]
        else:
            self._of[block] = values

    def clear(self) -> None:
        """No block has any."""
        self._of.clear()
