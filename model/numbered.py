"""What is known of each block of an engine: of all blocks, of some, or only how many there are."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

Known = TypeVar("Known")


class Some(dict[int, Known]):
    """What is known of some blocks, by block id: those that a watched engine has touched. It stands
    where an engine has one entry for each block."""


def numbered(each: Sequence[Known] | Some[Known]) -> Iterable[tuple[int, Known]]:
    """What is known of each block, with the ids of the blocks."""
    return each.items() if isinstance(each, Some) else enumerate(each)


class Counted:
    """So many things, of which only the number is known."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counted) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)
