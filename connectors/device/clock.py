"""When copies and threads in the background do their work."""

import contextlib
from bisect import insort
from collections.abc import Callable, Collection, Sequence
from typing import Any

from kvproof.connectors.device.order import ModelOrder
from kvproof.connectors.plan import Copies

LEASE_S = 30
"""How long the first of a pair keeps blocks for the other, in seconds of this clock."""


class ThreadIdle(BaseException):
    """A thread has nothing to do. No `except Exception` of vLLM catches it."""


class Clock:
    """Steps of the worker as time. A copy in the background has a window: from its submission to
    the report of its end, `copies.steps` steps later. It is made at the first or the last moment of
    its window. A thread in the background does its work at the same moments. `shared` has what the
    parts of an episode share; `order` is that of copies and the model; `current` is the thread that
    works. When the episode is `over`, no copy is made any more: a connector may give its memory
    back before they end. The worker that works has the rank `rank` of `ranks`; the
    tokens of a block lie on `stripes` of them. Kernels take blocks of `kernel_tokens` tokens; of
    any number if it is 0. The clocks of workers are `ahead` seconds ahead of others. With
    `by_block`, a block that is being copied needs no second copy. With `buffered`, NIXL cannot read
    the memory of the device."""

    def __init__(self, copies: Copies, by_block: bool = True, buffered: bool = False) -> None:
        self.late, self.window = copies.late, copies.steps
        self.by_block, self.buffered = by_block, buffered
        self.now = 0
        self.rank, self.ranks, self.stripes = 0, 1, 1
        self.kernel_tokens = self.ahead = 0
        self.shared: dict[str, Any] = {}
        self.order = ModelOrder(by_block)
        self._threads: list[Callable[[], None]] = []
        self._due: list[float] = []
        self._inside = False
        self.over = False
        self.current: Callable[[], None] | None = None

    def tick(self) -> None:
        """A step of the worker begins."""
        self.now += 1
        if self._due and self._due[0] <= self.now:
            self._due = [due for due in self._due if due > self.now]
            self.run()

    def end(self) -> None:
        """The process ends, and its threads with it. What of it is thrown away later, in another
        episode, has nothing that may work there."""
        self._threads.clear()
        self._due.clear()

    def begin_again(self) -> None:
        """The process ends, and another one begins: no thread and no address is left, and no copy
        is under way."""
        self.end()
        self.shared.clear()
        self.order = ModelOrder(self.by_block)

    def begin(self, thread: Callable[[], None]) -> None:
        """A thread begins. It is called again whenever there may be work, and raises ThreadIdle."""
        self._threads.append(thread)
        self._work([thread])

    @property
    def threads(self) -> tuple[Callable[[], None], ...]:
        """Those that have begun."""
        return tuple(self._threads)

    def stop(self, threads: Collection[Callable[[], None]]) -> None:
        """The process of these threads ends, and others go on."""
        self._threads = [each for each in self._threads if each not in threads]

    def notify(self) -> None:
        """There is work for the threads."""
        if self.late:
            self.wake(self.now + max(self.window, 1))
        else:
            self.run()

    def wake(self, at: float) -> None:
        """Let the threads work at that time, in seconds."""
        insort(self._due, at)

    def run(self) -> None:
        """The threads do all that there is to do."""
        if not self._inside:
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
        """A thread answers now, on behalf of who waits for it: it may wait for other threads."""
        before, self._inside = self._inside, False
        try:
            self._turn(thread)
        finally:
            self._inside = before

    def wait(self, ready: Callable[[], Any]) -> Any:
        """Wait until something is ready: in a thread, give up for now; else let the threads work.
        Raises RuntimeError if it does not get ready."""
        found = ready()
        if found:
            return found
        if self._inside:
            raise ThreadIdle
        self.run()
        found = ready()
        if not found:
            raise RuntimeError("the connector waits for a thread that has nothing to do")
        return found
