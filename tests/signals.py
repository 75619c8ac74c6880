"""Signals as a terminal leaves them.

A job in the background and a program under `nohup` ignore SIGINT or SIGHUP, and what they start
does too. kvproof leaves an ignored signal alone, so a test that sends one sets what it needs.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def as_in_a_terminal() -> None:
    """The `preexec_fn` of a program that gets a signal."""
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def heeded() -> Iterator[None]:
    """SIGINT interrupts this process, which sends itself one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
