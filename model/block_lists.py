"""How a choice changed a request's blocks, computed from its block tables before and after.

Lists have one entry for each group. `()` as tables means a request without blocks; `()` as lists
means that nothing is recorded.
"""

from collections.abc import Sequence

from kvproof.model.events import Lists
from kvproof.model.state import NULL


def gained(before: Lists, after: Lists) -> Lists:
    """The blocks of each table that it did not have before, in table order."""
    before = before or ((),) * len(after)
    return tuple(
        tuple(b for b in table if b != NULL and b not in old)
        for old, table in zip(before, after, strict=True)
    )


def freed(before: Lists, after: Lists) -> Lists:
    """The blocks that each table has lost, in the order freed: the tail first."""
    after = after or ((),) * len(before)
    return tuple(blocks[::-1] for blocks in gained(after, before))


def taken(before: Lists, after: Lists, copies: Sequence[tuple[int, int, int]]) -> Lists:
    """The blocks that each group took. A copy of a running state is in no table: it is the first
    block that its group took. `copies` has tuples of group, source block and target block."""
    lists = gained(before, after)
    return tuple(
        (*(c for group, _, c in copies if group == index and c not in blocks), *blocks)
        for index, blocks in enumerate(lists)
    )


def split(tables: Lists, hits: Sequence[int]) -> tuple[Lists, Lists]:
    """The tables of an admission, split in two: the entries of the hit (`hits` has their number for
    each group), and the blocks after them."""
    given = tuple(table[:n] for table, n in zip(tables, hits, strict=True))
    rest = (table[n:] for table, n in zip(tables, hits, strict=True))
    return given, tuple(tuple(b for b in table if b != NULL) for table in rest)


def both(one: Lists, other: Lists) -> Lists:
    """Join two lists of blocks for each group into one."""
    if not one or not other:
        return one or other
    return tuple((*a, *b) for a, b in zip(one, other, strict=True))
