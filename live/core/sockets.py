"""The sockets between an engine and its client, without a network, and the two threads of the
engine that read and write them.

The threads run vLLM's own functions. Each is called when there may be work, and gives up where it
would wait for ever. A wait with a timeout ends once without anything, so that a function which
collects messages until none comes does what it has to do with them. ZeroMQ copies a small frame at
once, and sends a large one from the buffer that it was given. Here the first frame of a message,
which has all but the tensors, counts as large whatever its size, because a real message may be: it
leaves when the next one comes, and until then its buffer may not be used again. All other frames
are copied at once.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import zmq
from vllm.v1.engine import core

from kvproof.live.fakes.clock import ThreadIdle
from kvproof.model.errors import AdapterDrift

INPUT, OUTPUT = "process_input_sockets", "process_output_sockets"
"""The names of the functions of both threads."""

TO_ENGINE, TO_CLIENT = "in", "out"
"""The addresses of both sockets."""


@contextmanager
def replaced(module: ModuleType, names: Mapping[str, Any]) -> Iterator[None]:
    """Replace these names of a module until the block ends."""
    before = {name: getattr(module, name) for name in names}
    vars(module).update(names)
    try:
        yield
    finally:
        vars(module).update(before)


class Tracker:
    """Whether a frame has left (`zmq.MessageTracker`)."""

    def __init__(self, done: bool) -> None:
        self.done = done


class Socket:
    """The engine's end of a connection: `arrived` are the messages that it has not read, and `left`
    those that have left it. A message is a list of frames."""

    def __init__(self) -> None:
        self.arrived: deque[Sequence[bytes]] = deque()
        self.left: deque[list[bytearray]] = deque()
        self._frames: list[Any] = []
        self._tracker = Tracker(True)
        self._leaving: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: no resource is open."""

    def recv_multipart(self, flags: int = 0, copy: bool = True, track: bool = False) -> list[Any]:  # noqa: ARG002
        """Read the next message."""
        if not self.arrived:
            raise zmq.Again if flags & zmq.NOBLOCK else ThreadIdle
        frames = self.arrived.popleft()
        return [*frames] if copy else [zmq.Frame(each) for each in frames]

    def send(self, data: Any, flags: int = 0, copy: bool = True, track: bool = False) -> Tracker:  # noqa: ARG002
        """Send a frame: the last one of its message, unless the flags say that more follow."""
        is_large = not (copy or self._frames)
        tracker = Tracker(not is_large)
        if not self._frames:
            self.flush()
            self._tracker = tracker
        self._frames.append(memoryview(data) if is_large else bytearray(data))
        if not flags & zmq.SNDMORE:
            self._leaving, self._frames = self._frames, []
        return tracker

    def send_multipart(
        self, parts: Sequence[Any], flags: int = 0, copy: bool = True, track: bool = False
    ) -> Tracker:
        """Send a message of several frames. The tracker is that of the last frame."""
        for part in parts[:-1]:
            self.send(part, flags | zmq.SNDMORE, copy, track)
        return self.send(parts[-1], flags, copy, track)

    def flush(self) -> None:
        """Let the message leave that is being sent."""
        if self._leaving:
            self.left.append([bytearray(each) for each in self._leaving])
            self._leaving = []
            self._tracker.done = True


class Context:
    """A fake of what makes sockets."""

    def __init__(self, *_: Any) -> None:
        """Make the fake."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: no resource is open."""


class Poller:
    """A fake of what a thread asks which of its sockets have messages."""

    def __init__(self) -> None:
        self.sockets: list[Socket] = []
        self._waited = False

    def register(self, socket: Socket, *_: Any) -> None:
        """Ask for a socket from now on."""
        self.sockets.append(socket)

    def poll(self, timeout: float | None = None) -> Sequence[tuple[Socket, int]]:
        """The sockets that have messages."""
        ready = [(each, zmq.POLLIN) for each in self.sockets if each.arrived]
        if not ready and (timeout is None or timeout < 0 or self._waited):
            raise ThreadIdle
        self._waited = not ready
        return ready


class Outputs(queue.Queue[Any]):
    """The queue of what an engine sends. `noted` is called with all that is put into it."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: Callable[[Any], None] = lambda _: None
        self._waited = False

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add what is for one of the clients."""
        self.noted(item[1])
        super().put(item, block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next of what is to be sent, for the thread that sends it."""
        is_empty = not self.qsize()
        if is_empty and ((block and timeout is None) or self._waited):
            raise ThreadIdle
        self._waited = is_empty
        return super().get(block=False)


class Thread:
    """A thread of an engine. It works when it is told to, until its function returns. The engine
    waits for none of the events that the function is given."""

    def __init__(
        self,
        target: Callable[..., None],
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        named = kwargs or {}
        self._work = partial(target, *args, **named)
        self.has_ended = False
        for each in (*args, *named.values()):
            if isinstance(each, threading.Event):
                each.wait = lambda *_, **__: True  # type: ignore[method-assign]

    def start(self) -> None:
        """Do nothing yet."""

    def work(self) -> None:
        """Work until there is nothing more to do. Raises what the function raises, with which the
        thread ends."""
        if self.has_ended:
            return
        self.has_ended = True
        try:
            self._work()
        except ThreadIdle:
            self.has_ended = False


class Sockets:
    """Both sockets of one engine, and the threads that its start has made. `ready` is the message
    with which the engine says that it is ready."""

    def __init__(self) -> None:
        self._ends = {TO_ENGINE: Socket(), TO_CLIENT: Socket()}
        self._threads: dict[str, Thread] = {}
        kinds = {"Context": Context, "Poller": Poller}
        self._names = {
            "zmq": SimpleNamespace(**vars(zmq) | kinds),
            "make_zmq_socket": lambda _ctx, path, *_, **__: self._ends[path],
        }
        self.ready = b""

    def making_threads(self) -> AbstractContextManager[None]:
        """Keep the threads that an engine starts, which then do nothing, until the block ends."""
        names = {"threading": SimpleNamespace(**vars(threading) | {"Thread": self._thread})}
        return replaced(core, names)

    def _thread(self, target: Callable[..., None], **kwargs: Any) -> Thread:
        """Make a thread. Raises AdapterDrift where it is none of the two that are driven: it would
        never work, and what depends on it would look like a mistake of vLLM."""
        name = getattr(target, "__name__", type(target).__name__)
        if name not in (INPUT, OUTPUT) or name in self._threads:
            raise AdapterDrift(f"An engine of this vLLM starts one more thread, {name}", name)
        if any(isinstance(each, queue.Queue) for each in kwargs.get("args", ())):
            raise AdapterDrift(f"{name} of this vLLM gets a queue of its own", name)
        made = self._threads[name] = Thread(target, **kwargs)
        return made

    def send(self, message: Sequence[bytes]) -> None:
        """Send a message to the engine, which reads it later."""
        self._ends[TO_ENGINE].arrived.append(message)

    def read(self) -> None:
        """Let the engine read the messages that were sent to it."""
        if self._ends[TO_ENGINE].arrived or not self.ready:
            for frames in self._work(INPUT, TO_ENGINE):
                self.ready = b"".join(frames)

    def written(self) -> Iterator[list[bytearray]]:
        """Let the engine send what it has for its client, and receive that."""
        return self._work(OUTPUT, TO_CLIENT)

    def _work(self, name: str, address: str) -> Iterator[list[bytearray]]:
        """Let a thread work, and receive what it sends to this address."""
        if name not in self._threads:
            raise AdapterDrift(f"An engine of this vLLM starts no thread {name}", name)
        with replaced(core, self._names):
            self._threads[name].work()
        end = self._ends[address]
        end.flush()
        while end.left:
            yield end.left.popleft()
