"""Interruptions: SIGINT, SIGTERM and SIGHUP stop the work that runs, and what was done is kept.

The first signal raises KeyboardInterrupt in the main thread. Code that keeps what was done runs its
work in `stoppable()`. Code that must not be cut in the middle runs in `held()`, and looks at
`requested()` itself. Who waits for another process ends it where KeyboardInterrupt comes. A second
signal ends the process at once.

Python runs a handler between two of its own instructions, so a signal during a call of C code is
seen when that call returns. Code of others may swallow a KeyboardInterrupt (vLLM has a bare
`except:`): work with several parts, or that shows its progress, calls `check` there.

This module imports no other part of kvproof, so that a program can begin with `handled()`.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

AGAIN_S = 0.3
"""The shortest time between two signals that count as two, in seconds: `timeout` and `make` send
one signal twice."""

_handled = False
_received: signal.Signals | None = None
_first_at = 0.0
"""The time of the first signal, by `time.monotonic`."""
_held = 0


def requested() -> bool:
    """Whether the user has asked this process to end. If so, new work must not begin."""
    return _received is not None


def check() -> None:
    """Raise KeyboardInterrupt if the user has asked this process to end, unless in `held`."""
    if requested() and not (_held and _in_main_thread()):
        raise KeyboardInterrupt


@contextmanager
def handled() -> Iterator[None]:
    """Handle the signals: of a whole program, or of one command inside another program, such as a
    test. A signal that is ignored stays ignored. Inside another `handled`, or in another thread
    than the main one, nothing changes."""
    global _handled, _received
    if _handled or not _in_main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    heeded = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]
    unraisable = sys.unraisablehook
    _handled = True
    for number in heeded:
        signal.signal(number, _handle)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])
        sys.unraisablehook = unraisable
        _handled, _received = False, None


class Interrupted:
    """Whether work in `stoppable` was stopped."""

    def __init__(self) -> None:
        self.early = False

    def __bool__(self) -> bool:
        return self.early


@contextmanager
def stoppable() -> Iterator[Interrupted]:
    """Run work that may be stopped anywhere: a KeyboardInterrupt ends the work and goes no further.
    Ask the result afterwards. Work with several parts calls `check` before each part, because
    nothing is raised any more after the first signal."""
    global _received
    stopped = Interrupted()
    try:
        yield stopped
    except KeyboardInterrupt:
        stopped.early = True
        if _handled and _received is None and _in_main_thread():  # raised by something else
            _received = signal.SIGINT


@contextmanager
def held() -> Iterator[Callable[[], bool]]:
    """Run code that a signal must not cut in the middle. The code may ask the function that it
    gets, which is `requested`. A signal in between raises KeyboardInterrupt at its end."""
    global _held
    here, before = _in_main_thread(), _received  # no signal cuts another thread
    _held += here
    try:
        yield requested
    finally:
        _held -= here
    if before is None:
        check()


def exit_code(code: int) -> int:
    """130 after SIGINT, 143 after SIGTERM, 129 after SIGHUP, else `code`."""
    return code if _received is None else 128 + _received


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _handle(number: int, _frame: Any) -> None:
    """Handle a signal, in the main thread. From then on, errors that cannot be raised are not
    printed: an object whose `__init__` was interrupted lacks what its finalizer uses."""
    global _received, _first_at
    if _received is not None:
        if time.monotonic() - _first_at > AGAIN_S:
            _end()
        return
    _received, _first_at = signal.Signals(number), time.monotonic()
    sys.unraisablehook = lambda _: None
    if not _held:
        raise KeyboardInterrupt


def _end() -> None:
    """End the process at once."""
    with suppress(OSError):
        os.write(2, b"\nInterrupted again: ended at once.\n")
    os._exit(exit_code(1))
