"""Fake event loops, which work when the clock of the kit says so, in the clock's seconds. vLLM's
coroutines run in Python's own loop, which stops where it would wait.

A late loop sees the work that another thread gives it at the end of the clock's window, or when a
caller waits for it. An early loop sees it at once, and so do the loops to which it gives work.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context
from typing import Any, TypeVarTuple

from kvproof.live.fakes.clock import Clock, FakeModule

Parts = TypeVarTuple("Parts")


class IdleSelector(selectors.DefaultSelector):
    """A selector that stops its loop where the loop would wait."""

    loop: asyncio.AbstractEventLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The events that are ready now."""
        ready = super().select(0)
        if not ready and timeout != 0:
            self.loop.stop()
        return ready


class ClockLoop(asyncio.SelectorEventLoop):
    """An event loop on the clock of the kit. `woken` says that another thread has given it work
    that it has not seen."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.woken = clock, False
        selector = IdleSelector()
        selector.loop = self
        super().__init__(selector)
        self.loops: list[ClockLoop] = clock.shared.setdefault("loops", [])
        self.loops.append(self)

    def time(self) -> float:
        """The time in seconds."""
        return float(self.clock.now)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Parts], object],
        *args: *Parts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a call at a time in seconds."""
        self.clock.wake(when)
        return super().call_at(when, callback, *args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Parts], object],
        *args: *Parts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Schedule a call from another thread."""
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        self.woken = True
        self.clock.notify()
        return handle

    def run_forever(self) -> None:
        """Do all the work that there is. Early loops continue until none of them has any work."""
        self._turn()
        while not self.clock.late and (woken := [each for each in self.loops if each.woken]):
            woken[0]._turn()

    def _turn(self) -> None:
        self.woken = False
        if not self.is_closed():
            super().run_forever()


class AwaitedFuture:
    """The result of a coroutine in a loop. A caller that waits for it lets the loop work."""

    def __init__(self, loop: ClockLoop, future: "Future[Any]") -> None:
        self.loop, self.future = loop, future

    def __getattr__(self, name: str) -> Any:
        return getattr(self.future, name)

    def result(self, timeout: float | None = None) -> Any:  # noqa: ARG002
        """The value that the coroutine returns. Where it waits for other threads, they work. Raises
        RuntimeError if the coroutine does not end."""
        if not self.future.done():
            self.loop.clock.serve(self.loop.run_forever)
        self.loop.clock.wait(self.future.done)
        return self.future.result()


class LoopModule(FakeModule):
    """A fake of the module `asyncio`."""

    real = asyncio

    def new_event_loop(self) -> ClockLoop:
        """Make a loop."""
        return ClockLoop(self.clock)

    def run_coroutine_threadsafe(
        self, coroutine: Coroutine[Any, Any, Any], loop: ClockLoop
    ) -> AwaitedFuture:
        """Run a coroutine in a loop, from another thread."""
        return AwaitedFuture(loop, asyncio.run_coroutine_threadsafe(coroutine, loop))


def close(clock: Clock) -> None:
    """Close the loops of the process, which ends, with all their pending work."""
    for loop in clock.shared.get("loops", ()):
        if not loop.is_closed():
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop._turn()
            loop.close()
