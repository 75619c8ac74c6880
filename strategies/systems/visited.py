"""A set of packed states with look-up and insertion of many states at once.

The states are stored in the order of discovery; an open-addressing hash table with linear probing,
on numpy columns, holds their numbers. Cost of a state: two random reads if it is known, a few more
if it is new or another state has its slot. Memory: 16 to 32 bytes for each state in the table, and
up to 16 bytes for each word of a state.
"""

import numpy as np
from numpy.typing import NDArray

from kvproof.strategies.systems.codec import Words

Rows = NDArray[np.intp]

FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
"""Odd numbers that spread bits well: of the golden ratio, and of xxHash."""
SLOTS_A_STATE = 4
"""The minimum number of slots for each state: fewer slots collide more often, more slots do not fit
the CPU cache."""
AT_ONCE = 1 << 16


class Visited:
    """The set. States are numbered from 0 in the order they were put in."""

    def __init__(self, words: int, bits: int = 12) -> None:
        self._bits = bits
        self._numbers = np.zeros(1 << bits, np.int32)  # 1 above the number of a state; 0: empty
        self._states = np.zeros((1 << bits, words), np.uint64)  # row 0 is unused
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def words(self, start: int, end: int) -> Words:
        """The states with these numbers, without the last one."""
        return np.ascontiguousarray(self._states[start + 1 : end + 1].T)

    def add(self, words: Words) -> Rows:
        """Insert states; return the places, ascending, of those that are new. Of equal states only
        one is new."""
        self._make_room(words.shape[1])
        first = self._count + 1
        # Room for all states first, since several of one call may probe the same slot; then only
        # new ones.
        self._states[first : first + words.shape[1]] = words.T
        rows, slots = self._put(words, first)
        order = np.argsort(rows)
        rows = rows[order]
        self._states[first : first + len(rows)] = words.take(rows, axis=1).T
        self._numbers[slots[order]] = np.arange(first, first + len(rows), dtype=np.int32)
        self._count += len(rows)
        return rows

    def _make_room(self, states: int) -> None:
        """Room for so many more."""
        needed = self._count + 1 + states
        if needed > len(self._states):
            larger = np.zeros((2 * needed, self._states.shape[1]), np.uint64)
            larger[: self._count + 1] = self._states[: self._count + 1]
            self._states = larger
        if SLOTS_A_STATE * needed > len(self._numbers):
            self._bits = (SLOTS_A_STATE * needed).bit_length()
            self._numbers = np.zeros(1 << self._bits, np.int32)
            for start in range(0, self._count, AT_ONCE):
                end = min(start + AT_ONCE, self._count)
                self._put(self.words(start, end), start + 1)

    def _slots(self, words: Words) -> Rows:
        """The slot at which the search for each state begins."""
        mixed: NDArray[np.uint64] = words[0] * np.uint64(FACTORS[0])
        for word in words[1:]:
            mixed ^= mixed >> np.uint64(32)
            mixed += word
            mixed *= np.uint64(FACTORS[1])
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(FACTORS[0])
        return (mixed >> np.uint64(64 - self._bits)).astype(np.intp)

    def _put(self, words: Words, first: int) -> tuple[Rows, Rows]:
        """Insert the states from row `first` on; return the places of the new ones and their slots.

        In each round a state probes one slot. If several states find the same slot empty, the last
        one takes it, and the others probe it again.
        """
        last = len(self._numbers) - 1
        slots = self._slots(words)
        found = self._numbers.take(slots)
        waiting = np.flatnonzero(self._differ(found, words))
        found, slots = found.take(waiting), slots.take(waiting)
        words = words.take(waiting, axis=1)
        new, at = [waiting[:0]], [waiting[:0]]
        while len(waiting):
            taken = found != 0
            free = np.flatnonzero(~taken)
            wanted = slots.take(free)
            names = (waiting.take(free) + first).astype(np.int32)
            self._numbers[wanted] = names
            won = self._numbers.take(wanted) == names
            new.append(waiting.take(free[won]))
            at.append(wanted[won])
            slots += taken
            slots &= last
            found = self._numbers.take(slots)
            differ = self._differ(found, words)
            differ[free[won]] = False
            left = np.flatnonzero(differ)
            waiting, found, slots = waiting.take(left), found.take(left), slots.take(left)
            words = words.take(left, axis=1)
        return np.concatenate(new), np.concatenate(at)

    def _differ(self, found: NDArray[np.int32], words: Words) -> NDArray[np.bool_]:
        """Whether the states found differ from these."""
        there = self._states.take(found, axis=0)
        differ: NDArray[np.bool_] = there[:, 0] != words[0]
        for number in range(1, len(words)):
            differ |= there[:, number] != words[number]
        return differ
