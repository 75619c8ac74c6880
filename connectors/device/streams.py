"""Streams and events of a device, on the clock of the kit (`torch.cuda.Stream`, `torch.Event`)."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from kvproof.connectors.device.clock import Clock


class Stream:
    """Work in order. `done` of the `added` works are carried out; those up to `waited` were waited
    for. vLLM makes streams without arguments, so the clock is of the class, and the stream of the
    `model`, whose work is not here: the kit computes it at once. Later work of another stream
    comes after the model's works up to `follows`."""

    clock: ClassVar[Clock]
    current: ClassVar["Stream"]
    model: ClassVar["Stream"]

    def __init__(self, *_: object, **__: object) -> None:
        self.works: deque[Callable[[], None]] = deque()
        self.added = self.done = self.waited = self.follows = 0

    @property
    def after(self) -> int:
        """The number of the last work of the model that is over when later work here begins."""
        return self.clock.order.computed if self is self.model else self.follows

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The lowest and the highest priority."""
        return 0, -1

    def add(self, work: Callable[[], None]) -> None:
        """Submit work: a copy, or waiting for another stream."""
        self.works.append(work)
        self.added += 1
        if not self.clock.late:
            self.run(self.added)

    def run(self, position: int) -> None:
        """Carry out all work up to a position."""
        while self.done < position:
            self.done += 1
            work = self.works.popleft()
            if not self.clock.over:
                work()

    def synchronize(self) -> None:
        """Wait for all work."""
        self.run(self.added)
        self.waited = self.added

    def wait_stream(self, other: "Stream") -> None:
        """Later work here follows all work that the other stream has now."""
        position = other.added
        self.follows = max(self.follows, other.after)
        self.add(lambda: other.run(position))

    def wait_event(self, event: "Event") -> None:
        """Later work here follows what the event was recorded after."""
        stream, position = event.stream, event.position
        self.follows = max(self.follows, event.after)
        if stream is not None:
            self.add(lambda: stream.run(position))

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Record an event on this stream."""
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """Whether all work is done."""
        return self.done == self.added


class Event:
    """A point in a stream. Work before it is reported as done when its window ends."""

    def __init__(self, *_: object, **__: object) -> None:
        self.stream: Stream | None = None
        self.position = self.due = self.after = 0

    def record(self, stream: Stream | None = None) -> None:
        """Note the work that the stream has now."""
        self.stream = stream or Stream.current
        self.position, self.after = self.stream.added, self.stream.after
        pending = self.position > self.stream.waited
        self.due = Stream.clock.now + (Stream.clock.window if pending else 0)

    def query(self) -> bool:
        """Whether the work before it is done. At the end of the window it is."""
        Stream.clock.order.finish(self.after)
        if self.stream is None or self.position <= self.stream.waited:
            return True
        if Stream.clock.now < self.due:
            return False
        self.synchronize()
        return True

    def synchronize(self) -> None:
        """Wait for the work before it."""
        Stream.clock.order.finish(self.after)
        if self.stream is not None:
            self.stream.run(self.position)
            self.stream.waited = max(self.stream.waited, self.position)

    def wait(self, stream: Stream | None = None) -> None:
        """Later work of the stream follows this event."""
        (stream or Stream.current).wait_event(self)

    def elapsed_time(self, _end: "Event") -> float:
        """Milliseconds: nobody knows."""
        return 1.0


def begin() -> None:
    """A process begins: the model has a stream, and all work goes there."""
    Stream.current = Stream.model = Stream()


def current_stream(*_: object) -> Stream:
    """The stream to which work goes if none is named: the model's, at first."""
    return Stream.current


@contextlib.contextmanager
def stream(used: Any) -> Iterator[None]:
    """Work goes to this stream until the block ends."""
    before, Stream.current = Stream.current, used or Stream.current
    try:
        yield
    finally:
        Stream.current = before
