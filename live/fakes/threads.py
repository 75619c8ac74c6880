"""Fake threads, queues and conditions, which wait for the clock of the kit instead of the operating
system. vLLM's own code runs in them; where it would block, it gives up until there is work."""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from kvproof.live.fakes.clock import Clock, FakeModule


class Threads(FakeModule):
    """A fake of the module `threading`."""

    real = threading

    def Thread(
        self, target: Callable[..., None], args: Iterable[Any] = (), **_: object
    ) -> "Thread":
        """Make a thread."""
        return Thread(self.clock, lambda: target(*args))

    def Condition(self, _lock: object = None) -> "Condition":
        """Make a condition."""
        return Condition(self.clock)


class Thread:
    """A thread that does its work when the clock says so."""

    def __init__(self, clock: Clock, work: Callable[[], None]) -> None:
        self.clock, self.work = clock, work

    def start(self) -> None:
        """Start the thread."""
        self.clock.begin(self.work)

    def join(self, timeout: float | None = None) -> None:  # noqa: ARG002
        """Let the thread do its remaining work."""
        self.clock.run()

    def is_alive(self) -> bool:
        """Whether the thread is alive: threads end with the episode."""
        return False


class Condition:
    """A condition for which threads wait."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.notified = clock, False

    def __enter__(self) -> None:
        self.notified = False

    def __exit__(self, *_: object) -> None:
        if self.notified:
            self.notified = False
            self.clock.notify()

    def notify(self, _n: int = 1) -> None:
        """Say that there is work, once the lock is released."""
        self.notified = True

    notify_all = notify

    def wait_for(self, predicate: Callable[[], Any]) -> Any:
        """Wait until the predicate is true."""
        return self.clock.wait(predicate)


class EventThreads(Threads):
    """The same fake where a thread waits for an event, and looks for work each time."""

    def Event(self) -> "ThreadEvent":
        """Make an event."""
        return ThreadEvent(self.clock)


class ThreadEvent:
    """An event for which a thread waits."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.happened = clock, False

    def is_set(self) -> bool:
        """Whether the event is set."""
        return self.happened

    def set(self) -> None:
        """Set the event."""
        self.happened = True
        self.clock.notify()

    def clear(self) -> None:
        """Clear the event."""
        self.happened = False

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        """Wait until the event is set."""
        return bool(self.clock.wait(self.is_set))


class QueueModule:
    """A fake of the module `queue` in a module of vLLM."""

    Empty, Full = queue.Empty, queue.Full

    def __init__(self, clock: Clock) -> None:
        self.Queue = self.SimpleQueue = QueueKind(clock)


class QueueKind:
    """A fake of the class of queues, with or without the type of its items."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def __getitem__(self, _kind: object) -> "QueueKind":
        return self

    def __call__(self, *_: object) -> "Queue":
        return Queue(self.clock)


class Queue:
    """A queue from which a thread takes work."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.items: deque[Any] = deque()
        self.unfinished_tasks = 0

    def put(self, item: Any, *_: object) -> None:
        """Add an item."""
        self.items.append(item)
        self.unfinished_tasks += 1
        self.clock.notify()

    put_nowait = put

    def get(self, *_: object) -> Any:
        """Take an item, and wait for one if there is none."""
        self.clock.wait(lambda: self.items)
        return self.items.popleft()

    def get_nowait(self) -> Any:
        """Take an item. Raises `queue.Empty` if there is none."""
        if not self.items:
            raise queue.Empty
        return self.items.popleft()

    def task_done(self) -> None:
        """Say that one item is processed."""
        self.unfinished_tasks -= 1

    def join(self) -> None:
        """Wait until all items are processed."""
        if self.unfinished_tasks:
            self.clock.run()

    def qsize(self) -> int:
        """The number of items that were not taken yet."""
        return len(self.items)

    def empty(self) -> bool:
        """Whether the queue has no items."""
        return not self.items


class TaskThread:
    """An executor with one thread, which takes the tasks."""

    def __init__(self, clock: Clock) -> None:
        self.tasks = Queue(clock)
        clock.begin(self._work)

    def submit(self, task: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Submit a task."""
        future: Future[Any] = Future()
        self.tasks.put((future, lambda: task(*arguments)))
        return future

    def shutdown(self, *_: object, **__: object) -> None:
        """End the executor when all tasks are done."""
        self.tasks.join()

    def _work(self) -> None:
        while True:
            future, task = self.tasks.get()
            try:
                future.set_result(task())
            except Exception as error:
                future.set_exception(error)
            self.tasks.task_done()
