"""This module keeps the sums of the blocks that this engine has computed, by the keys of the prefix
cache. A connector that loads the tokens of such a key must bring these bytes back."""

from typing import Any

PER_BLOCK, LEAST = 4, 10_000
"""So many keys are kept for each block of the pool, and at least."""


class Computed:
    """Keep the sums of the blocks of each key. A key may have several: an engine that computes the
    same tokens again may get other bits. What is kept is never dropped for something new, because a
    store may still have it: of the keys that have no place nothing is known."""

    def __init__(self, blocks: int) -> None:
        self._keys_max = max(PER_BLOCK * blocks, LEAST)
        self._of: dict[Any, tuple[int, ...]] = {}
        self._unread: set[Any] = set()

    def learn(self, key: Any, found: int) -> None:
        """Keep the sum of a block of this key, which was computed."""
        known = self._of.get(key, ())
        if found not in known and (known or len(self._of) < self._keys_max):
            self._of[key] = (*known, found)

    def miss(self, key: Any) -> None:
        """Note that a block of this key was computed and that its bytes are not known."""
        self._unread.add(key)

    def of(self, key: Any) -> tuple[int, ...]:
        """Return all sums that the blocks of a key had: none if one of them is not known."""
        return () if key in self._unread else self._of.get(key, ())


class WatchedLoad:
    """A load of one request. Its full `blocks` can be compared, each of which ends so many tokens;
    `left` are those that were not read yet, and `wrong` those whose bytes are others. `whole` means
    that all that it loads is compared. In its `step` it may still turn out to have failed."""

    def __init__(self, request: str, blocks: dict[int, int], step: Any, *, whole: bool) -> None:
        self.request = request
        self.blocks = blocks
        self.step = step
        self.whole = whole
        self.left = 0
        self.wrong: list[Any] = []

    @property
    def ended(self) -> bool:
        """Whether the result of the load is known for every block."""
        return self.step is None and not self.left
