"""The states of a `System` as 64-bit words, packed and unpacked many at once (see `layout`)."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvproof.model.arithmetic.system import Numbers, System, flat, shaped
from kvproof.model.errors import UsageError
from kvproof.strategies.systems.layout import BITS, Piece, Place, laid_out

Words = NDArray[np.uint64]
"""Packed states: a row for each word, a column for each state."""

Column = Any
"""A number in many states: an array with one axis, or an int if it is equal in all of them."""

USED = 1 << BITS
"""Set in the first word of every packed state, so that none is 0."""


class Codec:
    """Packs and unpacks the states of a system with these parameters."""

    def __init__(self, system: System, parameters: Numbers) -> None:
        self.shape = system.ranges(parameters)
        self.places, self._entries, self.words = laid_out(system, parameters)
        self.largest = max(
            max(abs(p.lowest), abs(p.highest), p.highest - p.lowest) for p in self.places
        )

    def pack(self, state: Numbers) -> Words:
        """The words of one state of ints."""
        packed = [0] * self.words
        packed[0] = USED
        for place, value in zip(self.places, flat(state), strict=True):
            _check(place, value, value)
            packed[place.word] |= (value - place.lowest) << place.shift
        return np.array(packed, np.uint64).reshape(-1, 1)

    def unpack(self, words: Words, kind: type[np.signedinteger[Any]]) -> list[Column]:
        """A column of this kind for each number of the states."""
        columns = []
        for place in self.places:
            column: Column = _cut_out(words, place.word, place.shift, place.bits).astype(kind)
            if place.lowest:
                column += kind(place.lowest)
            columns.append(column)
        return columns

    def states(self, words: Words) -> list[Numbers]:
        """The states as tuples of ints."""
        columns = [column.tolist() for column in self.unpack(words, np.int64)]
        return [shaped(self.shape, iter(row)) for row in zip(*columns, strict=True)]

    def change(self, words: Words, before: Sequence[Column], after: Iterable[Column]) -> None:
        """Turn the words of states into those after a step, from the numbers before and after it.
        Raises UsageError, with the name of the number, if a number is outside its range."""
        for place, old, new in zip(self.places, before, after, strict=True):
            if new is old:
                continue
            if isinstance(new, int):
                _check(place, new, new)
            else:
                _check(place, int(new.min()), int(new.max()))
            difference = np.subtract(new, old).astype(np.int64)
            if place.shift:
                difference <<= place.shift
            words[place.word] += difference.view(np.uint64)

    def sort(self, words: Words) -> None:
        """Put the entries of `alike` in ascending order, in the words of states."""
        for last in range(len(self._entries) - 1, 0, -1):
            for first in range(last):
                _order(words, self._entries[first], self._entries[first + 1])


def _piece(words: Words, piece: Piece) -> NDArray[np.uint64]:
    return _cut_out(words, piece.word, piece.shift, piece.bits)


def _cut_out(words: Words, word: int, shift: int, bits: int) -> NDArray[np.uint64]:
    """These bits of a word, moved down to bit 0."""
    moved: NDArray[np.uint64] = words[word] >> np.uint64(shift)
    return moved & np.uint64((1 << bits) - 1)


def _order(words: Words, first: Sequence[Piece], second: Sequence[Piece]) -> None:
    """Exchange two neighbouring entries where the second is smaller."""
    pairs = [(_piece(words, a), _piece(words, b)) for a, b in zip(first, second, strict=True)]
    swap = np.zeros(words.shape[1], bool)
    for one, other in reversed(pairs):
        swap = (other < one) | ((other == one) & swap)
    for (one, other), a, b in zip(pairs, first, second, strict=True):
        difference = np.where(swap, one ^ other, np.uint64(0))
        words[a.word] ^= difference << np.uint64(a.shift)
        words[b.word] ^= difference << np.uint64(b.shift)


def _check(place: Place, lowest: int, highest: int) -> None:
    if lowest < place.lowest or highest > place.highest:
        value = lowest if lowest < place.lowest else highest
        raise UsageError(
            f"{place.name} is {value}, which is outside {place.lowest}..{place.highest}. "
            f"Give it a range in `ranges` that holds every value it can take."
        )
