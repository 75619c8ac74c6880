"""Event loops that work when the clock of the kit says so, in its seconds. vLLM's coroutines run in
Python's own loop, which stops where it would wait.

A late loop sees what another thread gives it at the end of the clock's window, or when somebody
waits for it; an early one at once, and so do the loops to which it gives something.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import Context
from typing import Any, TypeVarTuple

from kvproof.connectors.device.clock import Clock
from kvproof.connectors.device.threads import TaskThread
from kvproof.connectors.device.wire import AtOnce

Parts = TypeVarTuple("Parts")


class IdleSelector(selectors.DefaultSelector):
    """Stops its loop where that would wait."""

    loop: asyncio.AbstractEventLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now."""
        ready = super().select(0)
        if not ready and timeout != 0:
            self.loop.stop()
        return ready


class ClockLoop(asyncio.SelectorEventLoop):
    """An event loop. `woken`: another thread has given it something that it has not seen."""

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
        """Call something then."""
        self.clock.wake(when)
        return super().call_at(when, callback, *args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Parts], object],
        *args: *Parts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call something, on behalf of another thread."""
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        self.woken = True
        self.clock.notify()
        return handle

    def run_forever(self) -> None:
        """Do what there is to do. Early loops go on until none of them has anything to do."""
        self._turn()
        while not self.clock.late and (woken := [each for each in self.loops if each.woken]):
            woken[0]._turn()

    def _turn(self) -> None:
        self.woken = False
        if not self.is_closed():
            super().run_forever()


class AwaitedFuture:
    """The end of a coroutine in a loop. Who waits for it lets the loop work."""

    def __init__(self, loop: ClockLoop, future: "Future[Any]") -> None:
        self.loop, self.future = loop, future

    def __getattr__(self, name: str) -> Any:
        return getattr(self.future, name)

    def result(self, timeout: float | None = None) -> Any:  # noqa: ARG002
        """What the coroutine returns. Where it waits for other threads, they work. Raises
        RuntimeError if it does not end."""
        if not self.future.done():
            self.loop.clock.serve(self.loop.run_forever)
        self.loop.clock.wait(self.future.done)
        return self.future.result()


class LoopModule:
    """In place of the module `asyncio` in a module of vLLM."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def new_event_loop(self) -> ClockLoop:
        """A loop."""
        return ClockLoop(self.clock)

    def run_coroutine_threadsafe(
        self, coroutine: Coroutine[Any, Any, Any], loop: ClockLoop
    ) -> AwaitedFuture:
        """Have a coroutine run in a loop, on behalf of another thread."""
        return AwaitedFuture(loop, asyncio.run_coroutine_threadsafe(coroutine, loop))


class SenderExecutor(TaskThread):
    """An executor of a loop: a late one does a task at the end of the clock's window."""

    def submit(self, task: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Have a task done."""
        if self.tasks.clock.late:
            return super().submit(task, *arguments)
        return AtOnce().submit(task, *arguments)


def executors(clock: Clock) -> Any:
    """In place of the class of executors."""
    return lambda *_, **__: SenderExecutor(clock)


def close(clock: Clock) -> None:
    """The process ends, and its loops with it, with what they have not done."""
    for loop in clock.shared.get("loops", ()):
        if not loop.is_closed():
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop._turn()
            loop.close()
