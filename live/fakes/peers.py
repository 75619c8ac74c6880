"""A fake network between engines that copy from each other: messages without real sockets, and
copies that may fail.

The calls are those of ZeroMQ and of NIXL that `vllm/v1/kv_offload/tiering/p2p` makes. The other
side finds a message when it looks next; it may see later that a connection has ended. If the
network forgets, all connections end, and messages in transit are lost. If it fails, copies end with
an error.
"""

import struct
from collections import deque
from collections.abc import Sequence

import zmq

from kvproof.live.fakes.clock import Clock, FakeModule
from kvproof.live.fakes.nixl import CopyingAgent
from kvproof.live.fakes.store_client import StoreClient

ENDPOINT = b"tcp://"
"""The origin of a connection's event. vLLM does not read it."""

DISCONNECTED = struct.pack("=hi", zmq.EVENT_DISCONNECTED, 0)
"""The event that a connection has ended."""


class Network(StoreClient):
    """The sockets of an episode: the ROUTERs by address, and the messages to addresses at which no
    ROUTER listens yet. For each connection that has ended, it has the step from which on the end
    can be seen."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.listening: dict[str, PeerSocket] = {}
        self.early: dict[str, list[list[bytes]]] = {}
        self.watched: dict[str, deque[int]] = {}
        self.dealers: list[PeerSocket] = []

    def forget(self, part: bool) -> None:  # noqa: ARG002 (a connection has no parts)
        """End all connections."""
        self.early.clear()
        for router in self.listening.values():
            router.inbox.clear()
        self.end(self.dealers)

    def end(self, dealers: Sequence["PeerSocket"]) -> None:
        """End these connections, and notify the sockets that watch them."""
        seen = self.clock.now + max(self.clock.window, 1) * self.clock.late
        for dealer in dealers:
            if dealer.events is not None:
                dealer.events.append(seen)


class PeerSocket:
    """A fake ZeroMQ socket: a ROUTER receives the messages of DEALERs, and a PAIR receives the
    events of one connection."""

    def __init__(self, network: Network, kind: int) -> None:
        self.network, self.kind = network, kind
        self.identity = b""
        self.address = ""
        self.inbox: deque[list[bytes]] = deque()
        self.events: deque[int] | None = None

    def setsockopt(self, *_: object) -> None:
        """No message takes time."""

    def bind(self, address: str) -> None:
        """Listen. Raises `zmq.ZMQError` where another socket does."""
        if address in self.network.listening:
            raise zmq.ZMQError(zmq.EADDRINUSE)
        self.address = address
        self.network.listening[address] = self
        self.inbox.extend(self.network.early.pop(address, ()))

    def connect(self, address: str) -> None:
        """Send to an address from now on, or watch a connection."""
        self.address = address
        if self.kind == zmq.PAIR:
            self.events = self.network.watched[address]
        else:
            self.network.dealers.append(self)

    def monitor(self, address: str, _mask: int) -> None:
        """Send the events of this connection to a PAIR at an address."""
        self.events = self.network.watched[address] = deque()

    def send(self, message: bytes, *_: object) -> None:
        """Send a message of one part to the socket that listens now or later."""
        router = self.network.listening.get(self.address)
        parts = [self.identity, bytes(message)]
        if router is None:
            self.network.early.setdefault(self.address, []).append(parts)
        else:
            router.inbox.append(parts)

    def recv_multipart(self, *_: object, **__: object) -> list[bytes]:
        """Receive a message. Raises `zmq.Again` where there is none."""
        if self.kind == zmq.PAIR and self.events and self.events[0] <= self.network.clock.now:
            self.events.popleft()
            return [DISCONNECTED, ENDPOINT]
        if not self.inbox:
            raise zmq.Again
        return self.inbox.popleft()

    def close(self, *_: object, **__: object) -> None:
        """Close the socket. A ROUTER notifies the sockets that are connected to it."""
        network = self.network
        if self.kind == zmq.ROUTER and network.listening.pop(self.address, None) is not None:
            network.end([each for each in network.dealers if each.address == self.address])
        elif self in network.dealers:
            network.dealers.remove(self)


class PeerContext:
    """A fake ZeroMQ context."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def socket(self, kind: int) -> PeerSocket:
        """Make a new socket."""
        return PeerSocket(self.network, kind)

    def destroy(self, **_: object) -> None:
        """End the context."""


class PeerSockets(FakeModule):
    """A fake of the module `zmq`."""

    real = zmq

    def Context(self) -> PeerContext:
        """Make a new context."""
        return PeerContext(_network(self.clock))


class PeerAgent(CopyingAgent):
    """A fake NIXL agent whose copies go over the network."""

    def __init__(self, clock: Clock, name: str) -> None:
        super().__init__(clock, name)
        self.network = _network(clock)

    def transfer(self, number: int, *_: object, **__: object) -> str:
        """Start a copy. If the network fails, the copy is not made."""
        if self.network.failures and self.network.call in ("", "get"):
            self.network.failures -= 1
            self.network.failed["get"] += 1
            self.transfers[number].failed = self.transfers[number].done = True
        return super().transfer(number)


def _network(clock: Clock) -> Network:
    if "network" not in clock.shared:
        clock.shared["network"] = Network(clock)
    network: Network = clock.shared["network"]
    return network
