"""Interruptions: SIGINT and SIGTERM stop the work that runs, and what was done is kept.

The first signal raises KeyboardInterrupt in the main thread. Code that keeps what was done runs its
work in `stoppable()`. Code that must not be cut in the middle runs in `held()`, and looks at
`requested()` itself. A thread watches all this, because Python runs no handler while C code runs:

- it calls the functions registered with `stopping()`, so that C code returns;
- it raises KeyboardInterrupt again if other code (vLLM has a bare `except:`) swallows it;
- it ends the process if even this does not help for about a second, and at the second signal.

That second is time that the main thread had, and not time that passed: on a machine with much to do
it waits long for a processor, and has done nothing wrong.

A second signal counts only `AGAIN_S` after the first: `timeout` and `make` send one signal twice.
This module imports no other part of kvproof, so that a program can begin with `install()`.
"""

import _thread
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

SLICE_S = 0.05
"""The time between two looks at work that has not stopped."""

IDLE_PART = 0.1
"""A look counts as a whole one where the main thread used the processor, and as this part of one
where it did not: it may sleep, or have to wait for a processor or a disk."""

LOOKS_MAX = 20
"""The number of looks before the process is ended. Looks are counted, not seconds: while C code
keeps all threads from running, as at the import of a large library, nothing is looked at."""

RAISED_EVERY = 6
"""The number of looks between two KeyboardInterrupts."""

AGAIN_S = 0.3
"""The least time between two signals that count as two."""

_received: signal.Signals | None = None
_first_at: float | None = None
"""When the thread saw the first signal, by `time.monotonic`."""
_noticed = False
_installed = False
_held = 0
_stops: list[Callable[[], object]] = []
_lock = threading.Lock()
_pipe: tuple[int, ...] = ()
"""The pipe to which Python writes the number of each signal: where it is read, and written."""


def requested() -> bool:
    """Whether the user has asked this process to end. Work does not begin any more then."""
    return _received is not None


def check() -> None:
    """Raise KeyboardInterrupt if the user has asked this process to end."""
    if requested():
        raise KeyboardInterrupt


def install() -> None:
    """Set the handlers for the rest of the process, as the first thing that a program does. A
    signal that is ignored stays ignored; in another thread than the main one, nothing happens."""
    global _installed
    if not _in_main_thread():
        return
    _installed = True
    _watch()
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)


@contextmanager
def handled() -> Iterator[None]:
    """Handlers for one command inside another program, such as a test. Where `install` was called,
    they are already there and stay."""
    global _received, _noticed
    if _installed:
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    _received, _noticed = None, False
    install()
    try:
        yield
    finally:
        _restore(before)


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    """End `handled`. What the thread has not read yet is of this command, and not of the next."""
    global _installed, _received, _first_at, _noticed
    if _installed:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        with _lock:
            _numbers(_pipe[0])
            _received, _first_at = None, None
    _installed, _received, _noticed = False, None, False


class Interrupted:
    """Whether work in `stoppable` was stopped."""

    def __init__(self) -> None:
        self.early = False

    def __bool__(self) -> bool:
        return self.early


@contextmanager
def stoppable() -> Iterator[Interrupted]:
    """Work that may be stopped anywhere: a KeyboardInterrupt ends it, and goes no further. Ask the
    result afterwards. Work that has several parts calls `check` before each, because nothing is
    raised any more after the first signal was noticed."""
    stopped = Interrupted()
    try:
        yield stopped
    except KeyboardInterrupt:
        caught()
        stopped.early = True


def caught() -> None:
    """Called by code that has caught a KeyboardInterrupt and ends now: nothing is raised any
    more."""
    global _received, _noticed
    if not _in_main_thread():
        return
    _noticed = True
    if _received is None and _installed:  # raised by something else than a signal
        _received = signal.SIGINT


def ignore() -> None:
    """From here on a signal raises nothing: the process ends anyway."""
    global _noticed
    _noticed = True


@contextmanager
def held() -> Iterator[Callable[[], bool]]:
    """Code that a signal does not cut. It may look at `requested`, which is the value here, and
    call `caught` where it ends early; otherwise KeyboardInterrupt is raised when it ends."""
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
    """While C code runs here, the first signal calls `stop`, in another thread and again and again,
    until this ends. Then KeyboardInterrupt is raised."""
    with _lock:
        _stops.append(stop)
    try:
        check()
        yield
    finally:
        with _lock:
            _stops.remove(stop)
    check()


def exit_code(code: int) -> int:
    """130 after SIGINT, 143 after SIGTERM, else `code`."""
    return code if _received is None else 128 + _received


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _handle(number: int, _frame: Any) -> None:
    """The handler, in the main thread."""
    global _received
    if _received is None:
        _received = signal.Signals(number)
    if not _noticed and not _held:
        raise KeyboardInterrupt


def _watch() -> None:
    """Start the thread that watches, once for this process."""
    global _pipe
    if not _pipe:
        _pipe = os.pipe()
        for end in _pipe:
            os.set_blocking(end, False)
        threading.Thread(target=_look, args=(_pipe[0],), daemon=True).start()
    signal.set_wakeup_fd(_pipe[1], warn_on_full_buffer=False)


def _look(reader: int) -> None:
    """The thread: wait for signals, and make sure that they end the process."""
    global _received, _first_at
    raised, looks, raise_at = 0, 0.0, float(RAISED_EVERY)
    used_s = _used_s()
    while True:
        waiting = _received is None or (_noticed and not _stops)
        select.select([reader], [], [], None if waiting else SLICE_S)
        with _lock:
            for number in _numbers(reader):
                if raised:  # this thread raised it
                    raised -= 1
                elif _first_at is None:
                    _received = _received or signal.Signals(number)
                    _first_at, looks, raise_at = time.monotonic(), 0.0, float(RAISED_EVERY)
                elif time.monotonic() - _first_at > AGAIN_S:
                    _end("Interrupted again: ended at once.")
            if _first_at is None:
                raised = 0
                continue
            _call_stops()
            if _noticed or _held or _stops:
                continue
            before_s, used_s = used_s, _used_s()
            looks += min(max((used_s - before_s) / SLICE_S, IDLE_PART), 1.0)
            if looks > LOOKS_MAX:
                _end("Interrupted, and the work did not stop by itself: ended.")
            if looks >= raise_at:
                raise_at = looks + RAISED_EVERY
                raised += 1
                _thread.interrupt_main(_received or signal.SIGINT)


def _used_s() -> float:
    """The processor time of the main thread, in seconds; where the system does not say, the time
    that has passed."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic()
    return time.clock_gettime(time.pthread_getcpuclockid(threading.main_thread().ident or 0))


def _numbers(reader: int) -> list[int]:
    """The numbers of the signals that arrived."""
    with suppress(BlockingIOError):
        return [n for n in os.read(reader, 512) if n in SIGNALS]
    return []


def _call_stops() -> None:
    for stop in _stops:
        with suppress(Exception):  # what is stopped may have ended by itself
            stop()


def _end(why: str) -> None:
    """End the process at once, also if the main thread does not run."""
    _call_stops()
    with suppress(OSError):
        os.write(2, f"\n{why}\n".encode())
    os._exit(exit_code(1))
