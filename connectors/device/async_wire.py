"""Fake sockets for event loops (`zmq.asyncio`), without a network: the ROUTER at an address
receives and answers the messages that a DEALER sends there."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import zmq

from kvproof.connectors.device.clock import Clock


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


class AsyncSockets:
    """A fake of the module `zmq` in a module of vLLM."""

    def __init__(self, clock: Clock) -> None:
        self.asyncio = SimpleNamespace(Context=lambda: AsyncContext(clock), Socket=AsyncSocket)

    def __getattr__(self, name: str) -> Any:
        return getattr(zmq, name)


def make_zmq_socket(ctx: AsyncContext, path: str, socket_type: int, **_: object) -> AsyncSocket:
    """A fake of `vllm.utils.network_utils.make_zmq_socket`."""
    made = ctx.socket(socket_type)
    made.connect(path)
    return made
