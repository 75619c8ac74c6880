"""The order of copies out of the KV caches and of the model's work. The model's steps run on a
stream of their own; a copy on another stream reads the content that is there when it runs."""

import ctypes
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kvproof.model.facts.connectors import CopiedAgain, CopiedTooEarly


class FreshBlock(NamedTuple):
    """The bytes of a block in a layer, from `begin` to `end`, which the model computes in its work
    of this number."""

    begin: int
    end: int
    number: int
    layer: str
    block: int


class UnderWay(NamedTuple):
    """A copy in progress: the call (`by`) that submitted it, and `content`, the bytes at its source
    address. `over` says whether the connector has seen its end."""

    by: str
    address: int
    content: bytes
    over: Callable[[], bool]


class ModelOrder:
    """The numbered works of the model: works up to number `computed` are submitted, and the host
    knows that works up to `finished` are complete. `caches` has the bytes of the KV caches by
    address, and `copies` counts the checked copies of blocks. `remembers` says whether a second
    copy of bytes that are being copied is recorded."""

    def __init__(self, remembers: bool = True) -> None:
        self.computed = self.finished = self.copies = 0
        self.remembers = remembers
        self.caches: dict[int, int] = {}
        self._fresh: list[FreshBlock] = []
        self._under_way: list[UnderWay] = []
        self._facts: list[CopiedTooEarly | CopiedAgain] = []

    def compute(self, blocks: Iterable[tuple[int, int, str, int]]) -> None:
        """Submit a work of the model: it fills blocks, each given with its first and last byte, its
        layer and its id."""
        self.computed += 1
        self._fresh = [each for each in self._fresh if each.number > self.finished]
        filled = [FreshBlock(a, b, self.computed, name, block) for a, b, name, block in blocks]
        self._fresh += filled
        self._under_way = [
            each
            for each in self._under_way
            if not any(one.begin <= each.address < one.end for one in filled)
        ]

    def forget_copies(self) -> None:
        """Forget the copies in progress, because the connector that submitted them forgets them.
        They may still run at any time, so from now on no copy is compared with those in
        progress."""
        self._under_way.clear()
        self.remembers = False

    def finish(self, number: int) -> None:
        """Record that the host knows that the works up to a number are complete."""
        self.finished = max(self.finished, number)

    def is_cache(self, address: int) -> bool:
        """Whether an address is in a KV cache."""
        return any(0 <= address - begin < size for begin, size in self.caches.items())

    def read(
        self, by: str, address: int, size: int, follows: int, over: Callable[[], bool]
    ) -> None:
        """Record that the call `by` submits a copy that reads these bytes, after the model's works
        up to the number `follows`. `over` says whether the connector has seen its end. Copies by
        other calls belong to other connectors."""
        if not self.is_cache(address):
            return
        self.copies += 1
        since = max(follows, self.finished)
        early = (e for e in self._fresh if e.number > since)
        for each in early:
            if each.begin < address + size and address < each.end:
                self._facts.append(CopiedTooEarly(each.layer, each.block))
                break
        copy = UnderWay(by, address, ctypes.string_at(address, size), over)
        self._under_way = [each for each in self._under_way if not each.over()]
        if self.remembers and any(each[:3] == copy[:3] for each in self._under_way):
            self._facts.append(CopiedAgain(address, size))
        self._under_way.append(copy)

    def take(self) -> list[CopiedTooEarly | CopiedAgain]:
        """The facts that were recorded since the last call."""
        facts, self._facts = self._facts, []
        return facts
