"""The client side of an engine's start: it receives the message that the engine sends when it is
ready."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import zmq
import zmq.asyncio
from vllm.v1.engine.core import EngineCoreProc

from kvproof.live.contract.lookup import last_line
from kvproof.live.fake import FakeParams
from kvproof.model.errors import AdapterDrift
from kvproof.model.facts.loop import SizeKnown

FIRST = b"\x00\x00"
"""The name that the client gives its first engine; the others have the next numbers."""

OF_USER = 1
"""The block size that the user asked for, in tokens. Workers with states have larger blocks."""


def known(core: Any, config: Callable[[], Any]) -> tuple[SizeKnown, ...]:
    """The values that a client of this engine knows, and one of two such engines, which share their
    requests (data parallelism). `config` makes that of the engine before the start. An empty
    message contains no values. Raises AdapterDrift."""
    from vllm.v1.engine.core_client import MPClient

    found = list[SizeKnown]()
    try:
        message = _message(core)
        for engines in (1, 2) if message else (1,):
            front = config()
            front.cache_config.block_size = OF_USER
            if engines > 1:
                front.parallel_config.data_parallel_size = engines
                front.parallel_config.data_parallel_rank_local = None  # one client for both
            if message:
                _receive(MPClient, front, message)
                blocks = engines * core.vllm_config.cache_config.num_gpu_blocks
                of_front = front.cache_config.num_gpu_blocks
                found.append(SizeKnown("blocks of all engines", blocks, of_front))
            found += _compared(core.vllm_config, front)
    except AdapterDrift:
        raise
    except Exception as error:
        why = f"The client of this vLLM does not take the engine's message ({last_line(error)})"
        raise AdapterDrift(why, "MPClient") from error
    return (*found,)


def _compared(own: Any, front: Any) -> Iterator[SizeKnown]:
    lengths = own.model_config.max_model_len, front.model_config.max_model_len
    yield SizeKnown("tokens of the longest request", *lengths)
    yield SizeKnown("tokens of a block", own.cache_config.block_size, front.cache_config.block_size)


class _Ready(BaseException):
    """An exception: the engine would wait for the first request."""


class _Socket:
    """A fake socket between client and engine, or a fake of what makes it: one side receives what
    the other has sent."""

    def __init__(self, message: bytes = b"") -> None:
        self.message = message
        self.received = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: ""

    @staticmethod
    def shadow(socket: "_Socket") -> "_Socket":
        """The same socket, for another kind of wait."""
        return socket

    def __enter__(self) -> "_Socket":
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: no resource is open."""

    def send(self, message: bytes) -> None:
        """Take the message that the engine is ready."""
        self.message = message

    def poll(self, **_: Any) -> int:
        """Say that there is a message."""
        return 1

    def recv_multipart(self) -> list[bytes]:
        """Return the name of the next engine, and its message."""
        self.received += 1
        return [(self.received - 1).to_bytes(len(FIRST), "little"), self.message]


class _Poller:
    def register(self, *_: Any) -> None:
        """Register a socket for which the engine will wait."""

    def poll(self) -> Any:
        """End the start, because the engine would wait."""
        raise _Ready


@contextmanager
def _connected(module: str, socket: _Socket) -> Iterator[None]:
    """Replace each socket that a module makes by this one, until the block ends."""
    kinds = {"Context": lambda **_: _Socket(), "Socket": _Socket, "Poller": _Poller}
    names = SimpleNamespace(**vars(zmq) | kinds)
    with patch(f"{module}.zmq", names), patch(f"{module}.make_zmq_socket", lambda *_, **__: socket):
        yield


def _message(core: Any) -> bytes:
    """The message that the engine sends when it is ready."""
    socket = _Socket()
    module = EngineCoreProc.__module__
    with _connected(module, socket):
        try:
            EngineCoreProc.process_input_sockets(core, ["in"], None, FIRST, Event())
        except _Ready:
            return socket.message
    raise AdapterDrift("An engine of this vLLM does not wait for its first request", module)


def _receive(client: Any, config: Any, message: bytes) -> None:
    """Make a client with this config, and let it wait until the engine is ready."""
    module = client.__module__
    with _connected(module, _Socket(message)):
        addresses = FakeParams(input_address="in", output_address="out")
        made = client(False, config, object, False, client_addresses=addresses)
    made._finalizer.detach()
