"""Per-block values of an engine that may be incomplete: values of all blocks, of some blocks, or
only a number of blocks."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

Known = TypeVar("Known")


class Some(dict[int, Known]):
    """The values of some blocks, by block id: the blocks that a watched engine has touched. It is
    used in place of a sequence with one entry for each block."""


def numbered(each: Sequence[Known] | Some[Known]) -> Iterable[tuple[int, Known]]:
    """The known blocks, as pairs of a block id and its value."""
    return each.items() if isinstance(each, Some) else enumerate(each)


class Counted:
    """A collection of which only the length is known, not the items."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counted) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)
