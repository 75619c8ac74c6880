"""The lines of head that differ from base."""

from collections.abc import Sequence
from difflib import SequenceMatcher

Hunk = tuple[int, int]
"""The first and the last line of a change, counted from 1."""


def hunks(base: Sequence[str], head: Sequence[str]) -> tuple[Hunk, ...]:
    """The changes in head, in order. Where lines were only removed, it is the line after them."""
    first = 0
    while first < min(len(base), len(head)) and base[first] == head[first]:
        first += 1
    last = 0
    while last < min(len(base), len(head)) - first and base[-1 - last] == head[-1 - last]:
        last += 1
    before, after = base[first : len(base) - last], head[first : len(head) - last]
    return tuple(
        (min(first + start + 1, len(head)), max(first + end, min(first + start + 1, len(head))))
        for tag, _, _, start, end in SequenceMatcher(None, before, after).get_opcodes()
        if tag != "equal"
    )


def clipped(found: Sequence[Hunk], line: int, end_line: int) -> tuple[Hunk, ...]:
    """The changes within some lines."""
    return tuple(
        (max(first, line), min(last, end_line))
        for first, last in found
        if first <= end_line and last >= line
    )


def outside(found: Sequence[Hunk], taken: Sequence[Hunk]) -> tuple[Hunk, ...]:
    """The changes without those that begin within some other lines."""
    return tuple(
        hunk for hunk in found if not any(first <= hunk[0] <= last for first, last in taken)
    )
