"""A network between engines that copy from each other: messages without sockets, and copies that
may fail.

The calls are those of ZeroMQ and of NIXL that `vllm/v1/kv_offload/tiering/p2p` makes. A message is
there when the other side looks next; that a connection has ended may be seen later. Where the
network forgets, all connections end, and messages under way are lost; where it fails, copies end in
an error.
"""

import struct
from collections import deque
from collections.abc import Sequence
from typing import Any

import zmq

from kvproof.connectors.device.clock import Clock
from kvproof.connectors.device.nixl import CopyingAgent
from kvproof.connectors.device.store_client import StoreClient

ENDPOINT = b"tcp://"
"""Where an event of a connection comes from: vLLM does not look."""

DISCONNECTED = struct.pack("=hi", zmq.EVENT_DISCONNECTED, 0)
"""The event that a connection has ended."""


class Network(StoreClient):
    """The sockets of an episode: ROUTERs by address, and messages for those that are not there
    yet. The ends of a connection are the steps from which on they can be seen."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.listening: dict[str, PeerSocket] = {}
        self.early: dict[str, list[list[bytes]]] = {}
        self.watched: dict[str, deque[int]] = {}
        self.dealers: list[PeerSocket] = []

    def forget(self) -> None:
        """All connections end."""
        self.early.clear()
        for router in self.listening.values():
            router.inbox.clear()
        self.end(self.dealers)

    def end(self, dealers: Sequence["PeerSocket"]) -> None:
        """These connections end, and who watches them is notified."""
        seen = self.clock.now + max(self.clock.window, 1) * self.clock.late
        for dealer in dealers:
            if dealer.events is not None:
                dealer.events.append(seen)


class PeerSocket:
    """A socket of ZeroMQ: a ROUTER receives what DEALERs send, and a PAIR what happens to one."""

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
        """Let what happens to this connection be watched at an address."""
        self.events = self.network.watched[address] = deque()

    def send(self, message: bytes, *_: object) -> None:
        """Send one part, to who listens now or later."""
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
        """End. Who is connected to a ROUTER is notified."""
        network = self.network
        if self.kind == zmq.ROUTER and network.listening.pop(self.address, None) is not None:
            network.end([each for each in network.dealers if each.address == self.address])
        elif self in network.dealers:
            network.dealers.remove(self)


class PeerContext:
    """A context of ZeroMQ."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def socket(self, kind: int) -> PeerSocket:
        """A new socket."""
        return PeerSocket(self.network, kind)

    def destroy(self, **_: object) -> None:
        """End."""


class PeerSockets:
    """In place of the module `zmq` in a module of vLLM."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(zmq, name)

    def Context(self) -> PeerContext:
        """A new context."""
        return PeerContext(_network(self.clock))


class PeerAgent(CopyingAgent):
    """An agent whose copies go over the network."""

    def __init__(self, clock: Clock, name: str) -> None:
        super().__init__(clock, name)
        self.network = _network(clock)

    def transfer(self, number: int, *_: object) -> str:
        """Begin a copy. Where the network fails, it is not made."""
        if self.network.failures:
            self.network.failures -= 1
            self.transfers[number].failed = self.transfers[number].done = True
        return super().transfer(number)


def _network(clock: Clock) -> Network:
    if "network" not in clock.shared:
        clock.shared["network"] = Network(clock)
    network: Network = clock.shared["network"]
    return network


def agents(clock: Clock) -> Any:
    """In place of the class of NIXL's agents."""
    return lambda name, *_, **__: PeerAgent(clock, name)
