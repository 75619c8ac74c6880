"""What is known of each block of an engine: of all blocks, or of some."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

Known = TypeVar("Known")


class Some(dict[int, Known]):
    """What is known of some blocks, by block id: those that a watched engine has touched. It stands
    where an engine has one entry for each block."""


def numbered(each: Sequence[Known] | Some[Known]) -> Iterable[tuple[int, Known]]:
    """What is known of each block, with the ids of the blocks."""
    return each.items() if isinstance(each, Some) else enumerate(each)
