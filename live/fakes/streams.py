"""Streams and events of a device, on the clock of the kit (`torch.cuda.Stream`, `torch.Event`)."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from kvproof.live.fakes.clock import Clock


class Stream:
    """A stream carries out works in their order. Of the `added` works, `done` are carried out, and
    the host has waited for works up to `waited`. vLLM makes streams without arguments, so the clock
    is an attribute of the class, and so is the stream of the `model`; the kit computes the model's
    work at once, so it is not in the stream. Later work of another stream runs after the model's
    works up to the number `follows`."""

    clock: ClassVar[Clock]
    current: ClassVar["Stream"]
    model: ClassVar["Stream"]

    def __init__(self, *_: object, **__: object) -> None:
        self.works: deque[Callable[[], None]] = deque()
        self.added = self.done = self.waited = self.follows = 0

    @property
    def after(self) -> int:
        """The number of the last work of the model that is complete before later work of this
        stream begins."""
        return self.clock.order.computed if self is self.model else self.follows

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The lowest and the highest priority of streams."""
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
        """Let later work here follow all work that the other stream has now."""
        position = other.added
        self.follows = max(self.follows, other.after)
        self.add(lambda: other.run(position))

    def wait_event(self, event: "Event") -> None:
        """Let later work here follow the work before an event."""
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
    """A point in a stream. The work before it is reported as done when its window ends."""

    def __init__(self, *_: object, **__: object) -> None:
        self.stream: Stream | None = None
        self.position = self.due = self.after = 0

    def record(self, stream: Stream | None = None) -> None:
        """Record the event after the work that the stream has now."""
        self.stream = stream or Stream.current
        self.position, self.after = self.stream.added, self.stream.after
        pending = self.position > self.stream.waited
        self.due = Stream.clock.now + (Stream.clock.window if pending else 0)

    def query(self) -> bool:
        """Whether the work before the event is done; it is at the end of the window."""
        Stream.clock.order.finish(self.after)
        if self.stream is None or self.position <= self.stream.waited:
            return True
        if Stream.clock.now < self.due:
            return False
        self.synchronize()
        return True

    def synchronize(self) -> None:
        """Wait for the work before the event."""
        Stream.clock.order.finish(self.after)
        if self.stream is not None:
            self.stream.run(self.position)
            self.stream.waited = max(self.stream.waited, self.position)

    def wait(self, stream: Stream | None = None) -> None:
        """Let later work of the stream follow this event."""
        (stream or Stream.current).wait_event(self)

    def elapsed_time(self, _end: "Event") -> float:
        """Milliseconds between two events; the number means nothing here."""
        return 1.0


def begin() -> None:
    """Begin a process: the model gets a stream, and all work goes there."""
    Stream.current = Stream.model = Stream()


def current_stream(*_: object) -> Stream:
    """The stream to which work goes if none is named; at first the model's."""
    return Stream.current


@contextlib.contextmanager
def stream(used: Any) -> Iterator[None]:
    """Send work to this stream until the block ends."""
    before, Stream.current = Stream.current, used or Stream.current
    try:
        yield
    finally:
        Stream.current = before
