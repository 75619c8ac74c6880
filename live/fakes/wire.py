"""Fake sockets without a network: a question is answered by the thread that listens at its address.
In event loops (`zmq.asyncio`), the ROUTER at an address receives and answers the messages that a
DEALER sends there."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import zmq

from kvproof.live.fakes.clock import Clock, FakeModule, ThreadIdle

ASKER = b"asker"
"""The identity of a socket that sends a question to a ROUTER."""


class Address:
    """An address at which a thread listens: its questions, its answers, and the thread."""

    def __init__(self) -> None:
        self.questions: deque[list[bytes]] = deque()
        self.answers: deque[list[bytes]] = deque()
        self.thread: Any = None


class Socket:
    """A fake ZeroMQ socket, as vLLM's connectors use it: REQ asks, REP and ROUTER answer."""

    def __init__(self, clock: Clock, kind: int, address: Address) -> None:
        self.clock, self.kind, self.address = clock, kind, address

    def setsockopt(self, *_: object) -> None:
        """No answer takes time."""

    def close(self, *_: object, **__: object) -> None:
        """Close the socket."""

    def send(self, part: Any, **_: object) -> None:
        """Send one part."""
        self.send_multipart([part])

    def send_multipart(self, parts: Sequence[Any], **_: object) -> None:
        """Send the parts of a message. A question is answered at once; what the thread does for it
        depends on the clock."""
        sent = [bytes(part) for part in parts]
        if self.kind == zmq.REQ:
            self.address.questions.append(sent)
            if self.address.thread is not None:
                self.clock.serve(self.address.thread)
        else:
            self.address.answers.append(sent[2:] if self.kind == zmq.ROUTER else sent)

    def recv(self, **_: object) -> bytes:
        """Receive one part."""
        return bytes(self.recv_multipart()[0])

    def recv_multipart(self, copy: bool = True, **_: object) -> list[Any]:
        """Receive the parts of a message. A listening thread gives up until there is a question.
        Raises `zmq.Again` if a question has no answer."""
        if self.kind == zmq.REQ:
            if not self.address.answers:
                raise zmq.Again
            return self.address.answers.popleft()
        if not self.address.questions:
            self.address.thread = self.clock.current
            raise ThreadIdle
        parts = self.address.questions.popleft()
        if self.kind == zmq.ROUTER:
            parts = [ASKER, b"", *parts]
        return parts if copy else [zmq.Frame(part) for part in parts]


def _socket(clock: Clock, kind: int, path: str) -> Socket:
    addresses = clock.shared.setdefault("addresses", {})
    return Socket(clock, kind, addresses.setdefault(path, Address()))


def make_socket(clock: Clock) -> Any:
    """Make the fake of `vllm.utils.network_utils.make_zmq_socket`."""

    def make_zmq_socket(_ctx: Any, path: str, socket_type: int, **_: object) -> Socket:
        return _socket(clock, socket_type, path)

    return make_zmq_socket


def socket_context(clock: Clock) -> Any:
    """Make the fake of `zmq_ctx` of vLLM's NIXL connector."""

    @contextlib.contextmanager
    def zmq_ctx(socket_type: int, addr: str) -> Iterator[Socket]:
        yield _socket(clock, socket_type, addr)

    return zmq_ctx


class AtOnce:
    """An executor that runs a task when it is submitted."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def submit(self, task: Any, *arguments: Any) -> "Future[Any]":
        """Run a task."""
        future: Future[Any] = Future()
        try:
            future.set_result(task(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, *_: object, **__: object) -> None:
        """End the executor."""


class AsyncSocket:
    """A fake socket in a loop. `timeout_s` is how long it waits for a message, in seconds."""

    def __init__(self, context: "AsyncContext", kind: int) -> None:
        self.context, self.kind = context, kind
        self.loop = asyncio.get_running_loop()
        self.inbox: asyncio.Queue[list[bytes] | None] = asyncio.Queue()
        self.timeout_s: float | None = None
        self.address, self.name = "", b""
        context.sockets.append(self)

    def __enter__(self) -> "AsyncSocket":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def setsockopt(self, option: int, value: int) -> None:
        """Set how long to wait; no other option matters without a network."""
        if option == zmq.RCVTIMEO:
            self.timeout_s = value / 1000

    def bind_to_random_port(self, _address: str) -> int:
        """Listen at a new port, and return the port."""
        ports = self.context.listening
        port = len(ports) + 1
        ports[f"{port}"] = self
        self.address = f"{port}"
        return port

    def connect(self, address: str) -> None:
        """Send to a port from now on, under a name that no other socket has."""
        self.address = address.rpartition(":")[2]
        self.name = f"{len(self.context.names)}".encode()
        self.context.names[self.name] = self

    async def send(self, message: bytes) -> None:
        """Send a message to the socket that listens. A message to a port at which no socket listens
        is lost."""
        self._give(self.context.listening.get(self.address), [self.name, bytes(message)])

    async def send_multipart(self, parts: Sequence[bytes]) -> None:
        """Send an answer: the name of the socket that asked, and the message."""
        name, message = parts
        self._give(self.context.names.get(bytes(name)), [bytes(message)])

    async def recv(self) -> bytes:
        """Receive an answer."""
        return (await self.recv_multipart())[0]

    async def recv_multipart(self) -> list[bytes]:
        """Receive a message. Raises `zmq.Again` if none comes in time, and `zmq.ContextTerminated`
        at the end."""
        try:
            parts = await asyncio.wait_for(self.inbox.get(), self.timeout_s)
        except TimeoutError as error:
            raise zmq.Again from error
        if parts is None:
            raise zmq.ContextTerminated
        return parts

    def close(self) -> None:
        """Close the socket."""
        if self.kind == zmq.ROUTER:
            self.context.listening[self.address] = None
        else:
            self.context.names[self.name] = None

    def _give(self, socket: "AsyncSocket | None", parts: list[bytes] | None) -> None:
        if socket is not None and not socket.loop.is_closed():
            socket.loop.call_soon_threadsafe(socket.inbox.put_nowait, parts)

    def end(self) -> None:
        """Wake the waiting reader, because no more messages will arrive."""
        self._give(self, None)


class AsyncContext:
    """The fake ZeroMQ context of a process. `listening` has the ROUTERs of all processes by port,
    `names` the DEALERs by name."""

    def __init__(self, clock: Clock) -> None:
        self.sockets: list[AsyncSocket] = []
        self.listening: dict[str, AsyncSocket | None] = clock.shared.setdefault("listening", {})
        self.names: dict[bytes, AsyncSocket | None] = clock.shared.setdefault("dealers", {})

    def socket(self, kind: int) -> AsyncSocket:
        """Make a new socket."""
        return AsyncSocket(self, kind)

    def term(self) -> None:
        """End all sockets, because the process ends."""
        for socket in self.sockets:
            socket.end()
            socket.close()
        self.sockets.clear()


class AsyncSockets(FakeModule):
    """A fake of the module `zmq`."""

    real = zmq

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.asyncio = SimpleNamespace(Context=lambda: AsyncContext(clock), Socket=AsyncSocket)


def make_zmq_socket(ctx: AsyncContext, path: str, socket_type: int, **_: object) -> AsyncSocket:
    """A fake of `vllm.utils.network_utils.make_zmq_socket`."""
    made = ctx.socket(socket_type)
    made.connect(path)
    return made
