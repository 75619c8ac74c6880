"""Fake sockets without a network: a question is answered by the thread that listens at its
address."""

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import zmq

from kvproof.connectors.device.clock import Clock, ThreadIdle

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
