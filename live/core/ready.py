"""The client side of an engine's start: it receives the message that the engine sends when it is
ready."""

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import zmq
import zmq.asyncio

from kvproof.live.contract.lookup import last_line
from kvproof.live.core.sockets import replaced
from kvproof.live.fake import FakeParams
from kvproof.model.errors import AdapterDrift
from kvproof.model.facts.loop import SizeKnown

FIRST = b"\x00\x00"
"""The name that the client gives its first engine; the others have the next numbers."""

OF_USER = 1
"""The block size that the user asked for, in tokens. Workers with states have larger blocks."""


def known(message: bytes, own: Any, config: Callable[[], Any]) -> tuple[SizeKnown, ...]:
    """The values that a client knows of an engine with its `own` config, which has sent this
    message, and of one of two such engines, which share their requests (data parallelism). `config`
    makes that of the engine before the start. An empty message contains no values. Raises
    AdapterDrift."""
    from vllm.v1.engine.core_client import MPClient

    found = list[SizeKnown]()
    try:
        for engines in (1, 2) if message else (1,):
            front = config()
            front.cache_config.block_size = OF_USER
            if engines > 1:
                front.parallel_config.data_parallel_size = engines
                front.parallel_config.data_parallel_rank_local = None  # one client for both
            if message:
                _receive(MPClient, front, message)
                blocks = engines * own.cache_config.num_gpu_blocks
                of_front = front.cache_config.num_gpu_blocks
                found.append(SizeKnown("blocks of all engines", blocks, of_front))
            found += _compared(own, front)
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

    def poll(self, **_: Any) -> int:
        """Say that there is a message."""
        return 1

    def recv_multipart(self) -> list[bytes]:
        """Return the name of the next engine, and its message."""
        self.received += 1
        return [(self.received - 1).to_bytes(len(FIRST), "little"), self.message]


def _receive(client: Any, config: Any, message: bytes) -> None:
    """Make a client with this config, and let it wait until the engine is ready."""
    kinds = {"Context": lambda **_: _Socket(), "Socket": _Socket}
    socket = _Socket(message)
    names = {
        "zmq": SimpleNamespace(**vars(zmq) | kinds),
        "make_zmq_socket": lambda *_, **__: socket,
    }
    with replaced(sys.modules[client.__module__], names):
        addresses = FakeParams(input_address="in", output_address="out")
        made = client(False, config, object, False, client_addresses=addresses)
    made._finalizer.detach()
