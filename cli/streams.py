"""This module replaces standard output and standard error of the program.

A result that cannot be written is an error of its own, `OutputLost`: standard output is closed, or
its disk is full. A reader that has gone, as `head` has, wanted no more: this is no error, and no
message is printed (`ReaderGone`). On standard error the same changes nothing. No text breaks a
stream: what its encoding lacks is written as an escape.
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


class _Descriptor(io.FileIO):
    """A standard stream as raw bytes. After a failure it accepts everything and writes nothing, so
    that Python finds nothing left to write when the process ends."""

    lost = False

    def write(self, data: Any) -> int:
        """Write bytes; returns how many were written. Raises OutputLost or ReaderGone."""
        while not self.lost:
            try:
                written = super().write(data)
            except OSError as error:
                self.lost = True
                if self.fileno() == OUT and isinstance(error, BrokenPipeError):
                    raise ReaderGone from error
                if self.fileno() == OUT:
                    raise OutputLost(error.strerror or str(error)) from error
                break
            if written is not None:
                return written
            select.select([], [self], [])  # it is not blocking, and full
        return len(data)


class _Output(io.TextIOWrapper):
    """Standard output or standard error. On a terminal, text replaces the live line."""

    def write(self, text: str) -> int:
        """Write text."""
        if self.line_buffering:
            live_line.clear()
        return super().write(text)


def prepare() -> None:
    """Replace `sys.stdout` and `sys.stderr`, and open the null device in place of each closed
    stream: else the next file that is opened would be standard output. Raises OutputLost where
    standard output is closed or not open for writing, and ReaderGone where it is a pipe without a
    reader: before any work, not after it."""
    closed = sys.stdout is None
    for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        if stream is None:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number
    sys.stderr, sys.stdout = _stream(sys.stderr, ERR), _stream(sys.stdout, OUT)
    if closed:
        raise OutputLost("it is closed")
    if fcntl.fcntl(OUT, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OutputLost("it is open for reading only")
    watched = select.poll()
    watched.register(OUT, 0)
    if any(event & (select.POLLERR | select.POLLNVAL) for _, event in watched.poll(0)):
        raise ReaderGone


def _stream(before: TextIO | None, number: int) -> TextIO:
    """Make the stream of a descriptor, with the encoding that Python chose for it."""
    raw = _Descriptor(number, "wb", closefd=False)
    return _Output(
        io.BufferedWriter(raw),
        encoding=before.encoding if before is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=number == ERR or raw.isatty(),
    )
