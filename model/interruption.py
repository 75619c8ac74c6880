"""Interruptions: SIGINT, SIGTERM and SIGHUP stop the work that runs, and what was done is kept.

The first signal raises KeyboardInterrupt in the main thread. Code that keeps what was done runs its
work in `stoppable()`. Code that must not be cut in the middle runs in `held()`, and looks at
`requested()` itself. Other processes are ended with `stopping()`. A second signal ends the process
at once.

Python runs a handler between two of its own instructions, so a signal during a call of C code is
seen when that call returns. Code of others may swallow a KeyboardInterrupt (vLLM has a bare
`except:`): work that shows its progress calls `raise_missed` there.

This module imports no other part of kvproof, so that a program can begin with `install()`.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

AGAIN_S = 0.3
"""The shortest time between two signals that count as two, in seconds: `timeout` and `make` send
one signal twice."""

_received: signal.Signals | None = None
_first_at = 0.0
"""The time of the first signal, by `time.monotonic`."""
_noticed = False
_installed = False
_held = 0
_stops: list[Callable[[], object]] = []


def requested() -> bool:
    """Whether the user has asked this process to end. If so, new work must not begin."""
    return _received is not None


def check() -> None:
    """Raise KeyboardInterrupt if the user has asked this process to end."""
    if requested():
        raise KeyboardInterrupt


def raise_missed() -> None:
    """Raise KeyboardInterrupt again if one was raised and no code of kvproof has caught it."""
    if requested() and not _noticed and not _held and _in_main_thread():
        raise KeyboardInterrupt


def install() -> None:
    """Set the handlers for the rest of the process, as the first thing that a program does. A
    signal that is ignored stays ignored; in another thread than the main one, nothing happens."""
    global _installed
    if not _in_main_thread():
        return
    _installed = True
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)


@contextmanager
def handled() -> Iterator[None]:
    """Set the handlers for one command inside another program, such as a test. Where `install` was
    called, they are already set and stay."""
    global _installed, _received, _noticed
    if _installed:
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    _received, _noticed = None, False
    install()
    try:
        yield
    finally:
        if _in_main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)
        _installed, _received, _noticed = False, None, False


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
    nothing is raised any more after the first signal was caught."""
    stopped = Interrupted()
    try:
        yield stopped
    except KeyboardInterrupt:
        caught()
        stopped.early = True


def caught() -> None:
    """Say that a KeyboardInterrupt was caught and that this code ends now. Nothing is raised any
    more."""
    global _received, _noticed
    if not _in_main_thread():
        return
    _noticed = True
    if _received is None and _installed:  # raised by something else than a signal
        _received = signal.SIGINT


def ignore() -> None:
    """Ignore signals from here on, because the process ends anyway."""
    global _noticed
    _noticed = True


@contextmanager
def held() -> Iterator[Callable[[], bool]]:
    """Run code that a signal must not cut in the middle. The code may ask the function that it
    gets, which is `requested`, and call `caught` where it ends early; otherwise KeyboardInterrupt
    is raised at its end."""
    global _held
    here = _in_main_thread()  # no signal cuts another thread
    _held += here
    try:
        yield requested
    finally:
        _held -= here
    if not _noticed:
        check()


@contextmanager
def stopping(stop: Callable[[], object]) -> Iterator[None]:
    """Wait for another process, in any thread: the first signal calls `stop`, and then
    KeyboardInterrupt is raised here too."""
    _stops.append(stop)
    try:
        check()
        yield
    finally:
        _stops.remove(stop)
    check()


def exit_code(code: int) -> int:
    """130 after SIGINT, 143 after SIGTERM, else `code`."""
    return code if _received is None else 128 + _received


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _handle(number: int, _frame: Any) -> None:
    """Handle a signal, in the main thread."""
    global _received, _first_at
    if _received is not None:
        if time.monotonic() - _first_at > AGAIN_S:
            _end("Interrupted again: ended at once.")
        return
    _received, _first_at = signal.Signals(number), time.monotonic()
    _call_stops()
    if not _noticed and not _held:
        raise KeyboardInterrupt


def _call_stops() -> None:
    for stop in list(_stops):
        with suppress(Exception):  # what is stopped may have ended by itself
            stop()


def _end(why: str) -> None:
    """End the process at once."""
    _call_stops()
    with suppress(OSError):
        os.write(2, f"\n{why}\n".encode())
    os._exit(exit_code(1))
