"""The clock of the kit: it decides when copies and background threads do their work. And the order
of copies out of the KV caches and of the model's work: the model's steps run on a stream of their
own; a copy on another stream reads the content that is there when it runs."""

import contextlib
import ctypes
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from kvproof.model.facts.connectors import Copied, CopiedBlock, CopiedBytes
from kvproof.model.plans.connector import Copies

LEASE_S = 30
"""The time for which the first engine of a pair keeps blocks for the other, in seconds of this
clock."""


class FakeModule:
    """The base class of fakes of a module in a module of vLLM, on the clock of the kit. A name that
    a fake does not define is that of the `real` module."""

    real: Any = None

    def __init__(self, clock: "Clock") -> None:
        self.clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class ThreadIdle(BaseException):
    """A thread has no work. It is no Exception, so no `except Exception` of vLLM catches it."""


class Clock:
    """The time of an episode, counted in steps of the worker. A background copy has a window from
    its submission to the report of its end, `copies.steps` steps later. The copy is made at the
    first or the last moment of its window, and a background thread does its work at the same
    moments. `shared` has the objects that the parts of an episode share. `order` is the order of
    copies and the model's work, and `current` the thread that works now. When the episode is
    `over`, no copy is made any more, because a connector may free its memory before copies end. The
    worker that works has the rank `rank` of `ranks`, and the tokens of a block lie on `stripes` of
    them. Kernels take blocks of `kernel_tokens` tokens, of any number if it is 0. The clocks of
    workers are `ahead` seconds ahead of other clocks. With `by_block`, a block that is being copied
    needs no second copy. With `buffered`, NIXL cannot read the memory of the device. In so many of
    the next reads of files, one of them is gone (`files_gone`): that at the place `file`, modulo
    their number, or else the one in the middle. Background threads do nothing
    before the time `goes_on`, unless somebody waits for them."""

    def __init__(self, copies: Copies, by_block: bool = True, buffered: bool = False) -> None:
        self.late, self.window = copies.late, copies.steps
        self.by_block, self.buffered = by_block, buffered
        self.now = self.goes_on = 0
        self.file: int | None = None
        self.rank, self.ranks, self.stripes = 0, 1, 1
        self.kernel_tokens = self.ahead = self.files_gone = 0
        self.shared: dict[str, Any] = {}
        self.order = ModelOrder(by_block)
        self._threads: list[Callable[[], None]] = []
        self._due: list[float] = []
        self._inside = False
        self.over = False
        self.current: Callable[[], None] | None = None

    def tick(self) -> None:
        """Begin a step of the worker."""
        self.now += 1
        if self._due and self._due[0] <= self.now:
            self._due = [due for due in self._due if due > self.now]
            self.run()

    def end(self) -> None:
        """End the process and its threads. Objects of the process that are collected later, in
        another episode, find nothing that could work there."""
        self._threads.clear()
        self._due.clear()

    def begin_again(self) -> None:
        """End the process and begin another one, which has no threads, no addresses and no copies
        in progress."""
        self.end()
        self.shared.clear()
        self.order = ModelOrder(self.by_block)

    def begin(self, thread: Callable[[], None]) -> None:
        """Start a thread. Its function is called whenever there may be work, and raises ThreadIdle
        when there is none."""
        self._threads.append(thread)
        self._work([thread])

    @property
    def threads(self) -> tuple[Callable[[], None], ...]:
        """The threads that have started."""
        return tuple(self._threads)

    def stop(self, threads: Collection[Callable[[], None]]) -> None:
        """Stop these threads, whose process ends; other threads continue."""
        self._threads = [each for each in self._threads if each not in threads]

    def notify(self) -> None:
        """Say that there is work for the threads."""
        if self.late:
            self.wake(self.now + max(self.window, 1))
        else:
            self.run()

    def wake(self, at: float) -> None:
        """Let the threads work at that time, in seconds."""
        insort(self._due, at)

    def stand(self, steps: int) -> None:
        """Let the threads stand for so many steps."""
        self.goes_on = self.now + steps
        self.wake(self.goes_on)

    @property
    def stands(self) -> bool:
        """Whether the threads stand."""
        return self.now < self.goes_on

    def run(self) -> None:
        """Let the threads do all the work that there is, unless they stand."""
        if not self._inside and not self.stands:
            self._work(self._threads)

    def _work(self, threads: Sequence[Callable[[], None]]) -> None:
        before, self._inside = self._inside, True
        try:
            for thread in threads:
                self._turn(thread)
        finally:
            self._inside = before

    def _turn(self, thread: Callable[[], None]) -> None:
        before, self.current = self.current, thread
        try:
            with contextlib.suppress(ThreadIdle):
                thread()
        finally:
            self.current = before

    def serve(self, thread: Callable[[], None]) -> None:
        """Let a thread answer now, for a caller that waits for it. The thread may wait for other
        threads."""
        before, self._inside = self._inside, False
        try:
            self._turn(thread)
        finally:
            self._inside = before

    def wait(self, ready: Callable[[], Any]) -> Any:
        """Wait until `ready`. In a thread, give up for now; elsewhere, let the threads work. Raises
        RuntimeError if it does not become ready."""
        found = ready()
        if found:
            return found
        if self._inside:
            raise ThreadIdle
        self.goes_on = self.now
        self.run()
        found = ready()
        if not found:
            raise RuntimeError("the connector waits for a thread that has nothing to do")
        return found


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
    address. With `by_block`, each block is copied
    for a key of its own. `reset` says that a connector has forgotten copies in progress."""

    def __init__(self, by_block: bool = True) -> None:
        self.computed = self.finished = 0
        self.by_block, self.reset = by_block, False
        self.caches: dict[int, int] = {}
        self._fresh: list[FreshBlock] = []
        self._under_way: list[UnderWay] = []
        self._number = 0
        self._early: list[CopiedBlock] = []
        self._again: list[CopiedBytes] = []

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
        They may still run at any time."""
        self._under_way.clear()
        self.reset = True

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
            return  # cannot be judged: no step computes what is elsewhere
        self._number += 1
        since = max(follows, self.finished)
        early = (e for e in self._fresh if e.number > since)
        for each in early:
            if each.begin < address + size and address < each.end:
                self._early.append(CopiedBlock(each.layer, each.block))
                break
        copy = UnderWay(by, address, ctypes.string_at(address, size), over)
        self._under_way = [each for each in self._under_way if not each.over()]
        if any(each[:3] == copy[:3] for each in self._under_way):
            self._again.append(CopiedBytes(address, size, self.reset))
        self._under_way.append(copy)

    def take(self) -> Copied:
        """The copies that were submitted since the last call."""
        taken = Copied(self._number, tuple(self._early), tuple(self._again), self.by_block)
        self._number = 0
        self._early.clear()
        self._again.clear()
        return taken
