"""Standard output and standard error of the program.

A result that cannot be written is an error of its own, `OutputLost`, wherever it happens: standard
output is closed, or its disk is full. A reader that has gone, as `head` has, wanted no more: this
is no error, and no message is printed (`ReaderGone`). On standard error the same changes nothing.
No text breaks a stream: what its encoding lacks is written as an escape.
"""

import fcntl
import io
import os
import select
import signal
import sys
from typing import Any, TextIO

from kvproof.reports import live_line

EXIT_CODE = 4
"""The exit code where the output could not be written."""

READER_GONE = 128 + signal.SIGPIPE
"""The exit code where the reader of standard output has gone: what a shell reports of a program
that this signal has ended."""

OUT, ERR = 1, 2


class OutputLost(BaseException):
    """Standard output cannot be written. The message is two sentences.

    Like KeyboardInterrupt, it is not an Exception: no command continues without its output.
    """

    def __init__(self, why: str) -> None:
        super().__init__(
            f"Standard output cannot be written ({why}). "
            "Use a terminal, or a file on a disk with room."
        )


class ReaderGone(BaseException):
    """The reader of standard output has gone. Like KeyboardInterrupt, it is not an Exception."""


class _Descriptor(io.RawIOBase):
    """A file descriptor as a stream. After a failure it accepts everything and writes nothing, so
    that Python finds nothing left to write when the process ends."""

    def __init__(self, descriptor: int, *, needed: bool) -> None:
        self.descriptor = descriptor
        self.needed = needed
        self.lost = False

    def writable(self) -> bool:
        """Yes."""
        return True

    def fileno(self) -> int:
        """The descriptor."""
        return self.descriptor

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return os.isatty(self.descriptor)

    def write(self, data: Any) -> int:
        """Write bytes; returns how many were written. Raises OutputLost or ReaderGone."""
        while not self.lost:
            try:
                return os.write(self.descriptor, data)
            except BlockingIOError:
                select.select([], [self.descriptor], [])
            except OSError as error:
                self.lost = True
                if self.needed and isinstance(error, BrokenPipeError):
                    raise ReaderGone from error
                if self.needed:
                    raise OutputLost(error.strerror or str(error)) from error
        return len(data)


class _Output(io.TextIOWrapper):
    """Standard output or standard error. On a terminal, text replaces the live line."""

    def write(self, text: str) -> int:
        """Write text."""
        if self.line_buffering:
            live_line.clear()
        return super().write(text)


def fill() -> None:
    """Open the null device in place of each closed stream: else the next file that is opened would
    be standard output."""
    for number in (0, OUT, ERR):
        if not _open(number):
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number


def prepare() -> None:
    """Replace `sys.stdout` and `sys.stderr`. Raises OutputLost where standard output is closed or
    not open for writing, and ReaderGone where it is a pipe without a reader: before any work, not
    after it."""
    closed = sys.stdout is None
    sys.stderr = _stream(sys.stderr, ERR, needed=False)
    sys.stdout = _stream(sys.stdout, OUT, needed=True)
    if closed:
        raise OutputLost("it is closed")
    if fcntl.fcntl(OUT, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OutputLost("it is open for reading only")
    watched = select.poll()
    watched.register(OUT, 0)
    if any(event & (select.POLLERR | select.POLLNVAL) for _, event in watched.poll(0)):
        raise ReaderGone


def _open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _stream(before: TextIO | None, number: int, *, needed: bool) -> TextIO:
    """The stream of a descriptor, with the encoding that Python chose for it."""
    raw = _Descriptor(number, needed=needed)
    return _Output(
        io.BufferedWriter(raw),
        encoding=before.encoding if before is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=not needed or raw.isatty(),
    )
