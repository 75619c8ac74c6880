"""Fakes of Mooncake, in the memory of this process: a store (`mooncake.store`), which keeps values
under their keys, and a transfer engine (`mooncake.engine`), with vLLM's own servers at which its
Mooncake workers find each other, without sockets."""

import ctypes
import importlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from kvproof.live.fakes.clock import Clock
from kvproof.live.fakes.store_client import StoreClient

FAILED = -800
"""Mooncake's answer if a transfer fails (`TRANSFER_FAIL`)."""

GONE = -704
"""Mooncake's answer for a key that it does not have (`OBJECT_NOT_FOUND`)."""


class Store(StoreClient):
    """A client of the store. It reads and writes memory by address, as Mooncake does."""

    def setup(self, *_: object, **__: object) -> int:
        """Connect to the store. Returns 0 for success."""
        self.is_open = True
        return 0

    def register_buffer(self, _address: int, _size: int) -> int:
        """Register memory with the network card; this has no effect."""
        return 0

    def batch_is_exist(self, keys: Sequence[str]) -> list[int]:
        """Return 1 for each key that the store has, 0 for any other."""
        failed = self.failing("look-up", len(keys))
        return [FAILED if n in failed else int(key in self.kept) for n, key in enumerate(keys)]

    def batch_put_from_multi_buffers(
        self,
        keys: Sequence[str],
        addresses: Sequence[Sequence[int]],
        sizes: Sequence[Sequence[int]],
        *_: object,
    ) -> list[int]:
        """Store the memory at these addresses under each key that the store does not have yet.
        Returns 0 for each stored key."""
        failed = self.failing("put", len(keys))
        for n, (key, where, counts) in enumerate(zip(keys, addresses, sizes, strict=True)):
            if n in failed:
                continue
            self.note(key)
            if key not in self.kept:
                parts = zip(where, counts, strict=True)
                self.kept[key] = b"".join(ctypes.string_at(at, size) for at, size in parts)
        return [FAILED if n in failed else 0 for n in range(len(keys))]

    def batch_get_into_multi_buffers(
        self,
        keys: Sequence[str],
        addresses: Sequence[Sequence[int]],
        sizes: Sequence[Sequence[int]],
    ) -> list[int]:
        """Fill memory from the value of each key. Returns the number of bytes of each, or
        `GONE`."""
        failed = self.failing("get", len(keys))
        return [
            FAILED if n in failed else self._fill(self.kept.get(key), where, counts)
            for n, (key, where, counts) in enumerate(zip(keys, addresses, sizes, strict=True))
        ]

    def _fill(self, kept: bytes | None, where: Sequence[int], counts: Sequence[int]) -> int:
        if kept is None or len(kept) != sum(counts):
            return GONE
        begin = 0
        for at, size in zip(where, counts, strict=True):
            ctypes.memmove(at, kept[begin : begin + size], size)
            begin += size
        return begin

    def remove_all(self, force: bool = False) -> int:  # noqa: ARG002
        """Remove all values."""
        self.kept.clear()
        return 0

    def close(self) -> None:
        """Disconnect."""
        self.is_open = False


class ReplicateConfig:
    """The number of copies of a value; here it is always one."""

    group_ids: list[str]


MODULES: dict[str, dict[str, Any]] = {
    "mooncake": {},
    "mooncake.store": {"MooncakeDistributedStore": Store, "ReplicateConfig": ReplicateConfig},
}
"""The names that vLLM imports from Mooncake, by module."""


HOME = "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector"

NOT_WRITTEN = -1
"""The answer if a transfer fails."""


class TransferEngine(StoreClient):
    """A fake engine, which writes into the memory of another one. `known` is its registered
    memory."""

    closes = False

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.engines: list[TransferEngine] = clock.shared.setdefault("transfer engines", [])
        self.engines.append(self)
        self.port = len(self.engines)
        self.known: list[tuple[int, int]] = []

    def forget(self, part: bool) -> None:  # noqa: ARG002 (a connection has no parts)
        """End all connections: the next write fails."""
        self.failures = max(self.failures, 1)

    def initialize(self, *_: object) -> int:
        """Start the engine. Returns 0 for success."""
        return 0

    def get_rpc_port(self) -> int:
        """The port at which others find this engine."""
        return self.port

    def batch_register_memory(self, addresses: Sequence[int], sizes: Sequence[int]) -> int:
        """Register memory with the network card."""
        self.known += zip(addresses, sizes, strict=True)
        return 0

    def batch_transfer_sync_write(
        self,
        session: str,
        sources: Sequence[int],
        targets: Sequence[int],
        sizes: Sequence[int],
    ) -> int:
        """Write into the memory of the engine `host:port`. Returns `NOT_WRITTEN` where the network
        fails, or where memory is not registered."""
        if self.failures and self.call in ("", "get"):
            self.failures -= 1
            self.failed["get"] += 1
            return NOT_WRITTEN
        other = self.engines[int(session.rpartition(":")[2]) - 1]
        moves = [*zip(sources, targets, sizes, strict=True)]
        for source, target, size in moves:
            if not (self._has(source, size) and other._has(target, size)):
                return NOT_WRITTEN
        for source, target, size in moves:
            ctypes.memmove(target, source, size)
        return 0

    def _has(self, at: int, size: int) -> bool:
        return any(begin <= at and at + size <= begin + room for begin, room in self.known)


def engines(clock: Clock) -> Any:
    """Make the class that replaces the class of transfer engines."""
    return lambda: TransferEngine(clock)


def ends_in_time(clock: Clock) -> Any:
    """Replace the `__init__` of a worker whose `__del__` shuts it down, so that a worker that is
    collected after its episode has nothing to shut down."""
    kind = importlib.import_module(HOME).MooncakeConnectorWorker
    begin, shutdown = kind.__init__, kind.shutdown

    def init(worker: Any, *parts: Any, **named: Any) -> None:
        def ends(*given: Any, **more: Any) -> Any:
            return None if clock.over else shutdown(worker, *given, **more)

        worker.shutdown = ends
        begin(worker, *parts, **named)

    return init


def _servers(clock: Clock) -> dict[int, Any]:
    servers: dict[int, Any] = clock.shared.setdefault("servers", {})
    return servers


def start(clock: Clock) -> Any:
    """Replace a server's `start`: it answers at its port."""

    def begins(server: Any, *_: Any, **__: Any) -> None:
        _servers(clock)[server.port] = server

    return begins


def shutdown(clock: Clock) -> Any:
    """Replace a server's `shutdown`."""

    def ends(server: Any, *_: Any, **__: Any) -> None:
        port = server.port
        if _servers(clock).get(port) is server:
            del _servers(clock)[port]

    return ends


def clients(clock: Clock) -> Any:
    """Make the object that replaces the module `httpx` in a module of vLLM: its client asks the
    servers."""
    import httpx

    async def answer(request: Any) -> Any:
        server = _servers(clock).get(request.url.port)
        if server is None:
            raise httpx.ConnectError("nobody listens", request=request)
        return await httpx.ASGITransport(server.app).handle_async_request(request)

    def client(**named: Any) -> Any:
        return httpx.AsyncClient(**named, transport=httpx.MockTransport(answer))

    return SimpleNamespace(**{**vars(httpx), "AsyncClient": client})
