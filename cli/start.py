"""The start and the end of the program: each way to end has one exit code and one message.

Signals are handled first, and only then comes the import of the rest, which takes up to a second.
So Ctrl-C is noticed from the beginning.
"""

import atexit
import importlib
import io
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from kvproof.model import interruption
from kvproof.model.errors import UsageError
from kvproof.model.raised import last_place
from kvproof.reports.screen import clear, say

BAD_USAGE, DEFECT, NOT_PRINTED = 2, 3, 4

READER_GONE = 128 + signal.SIGPIPE
"""The exit code where the reader of standard output has gone, as `head` has: what a shell reports
of a program that this signal has ended. It wanted no more, so nothing is said."""

ROOT = f"{Path(__file__).parents[1]}{os.sep}"
"""Where the code of kvproof is."""

AUTHORS = f"{ROOT}invariants{os.sep}", f"{ROOT}model{os.sep}faults{os.sep}"
"""Where authors write checks and faults."""

MACHINERY = ("check", "fault", "registry")
"""The modules there that are no author's."""


class _RawErrors(io.FileIO):
    """Standard error as raw bytes. What it cannot take is lost, and changes no verdict."""

    def write(self, data: Any) -> int:
        """Write bytes; returns how many were written or are lost."""
        try:
            return super().write(data)
        except OSError:
            return len(data)


def main() -> NoReturn:
    """Run the program `kvproof`, and end the process."""
    program("kvproof.cli.main")


def program(module: str) -> NoReturn:
    """Run the function `main` of a module as a program, and end the process with its exit code."""
    with interruption.handled():
        code = interruption.exit_code(_ended(module))
        for number in interruption.SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        # Python would first take vLLM's modules apart, which lasts seconds; threads would keep it.
        atexit._run_exitfuncs()
        sys.stderr.flush()
        os._exit(code)


def _ended(module: str) -> int:
    """Prepare the standard streams, run a module, and return the exit code."""
    closed = sys.stdout is None
    for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        if stream is None:  # else the next file that is opened would be standard output
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number
    encoding = sys.stderr.encoding if sys.stderr is not None else "utf-8"
    errors = io.BufferedWriter(_RawErrors(2, "wb", closefd=False))
    sys.stderr = io.TextIOWrapper(errors, encoding=encoding, line_buffering=True)
    if closed:
        return _lost("it is closed")
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")  # what the encoding of the user lacks
            os.set_blocking(output.fileno(), True)  # a writer of Python waits for no full pipe
    # Hypothesis would keep its caches in the working folder; without them it works as well.
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", os.devnull)
    try:
        code = _run(module)
        clear()
        sys.stdout.flush()
    except OSError as error:
        return _lost(error.strerror or str(error), gone=isinstance(error, BrokenPipeError))
    return code


def _lost(why: str, *, gone: bool = False) -> int:
    """Say that standard output cannot be written, unless its reader is gone. Return the exit
    code."""
    if gone:
        return READER_GONE
    use = "a terminal, or a file on a disk with room"
    return _report(f"Standard output cannot be written ({why}). Use {use}.", NOT_PRINTED)


def _run(module: str) -> int:
    try:
        os.getcwd()
    except OSError as error:
        why = f"The working folder cannot be used ({error.strerror})"
        return _report(f"{why}. Use a folder that exists.", BAD_USAGE)
    try:
        return int(importlib.import_module(module).main())
    except SystemExit as end:  # argparse, after --help and --version
        return end.code if isinstance(end.code, int) else 0
    except UsageError as error:  # a file that declares something is not right
        return _report(str(error), BAD_USAGE)
    except MemoryError:
        return _report(
            "UNKNOWN: the memory is used up. Use --memory-max or a smaller scope.", DEFECT
        )
    except BaseException as error:  # an import may turn a KeyboardInterrupt into any other error
        if isinstance(error, OSError):
            print(flush=True)  # raises it again where standard output is what cannot be written
        if interruption.requested() or isinstance(error, KeyboardInterrupt):
            return _report("Interrupted.", DEFECT)
        return _defect(error)


def _defect(error: BaseException) -> int:
    """Print an exception with its traceback, and where in kvproof it was raised. Return the exit
    code."""
    clear()
    with suppress(Exception):  # where no file can be opened, there are no lines of code
        sys.excepthook(type(error), error, error.__traceback__)
    if (at := last_place(error, _is_of_author)) is not None:
        where = f"{at.filename.removeprefix(ROOT)}, line {at.lineno}"
        return _report(
            f"An exception in {where} ended the run, and there is no verdict. Use a check or a "
            "fault there that takes what it is given.",
            DEFECT,
        )
    at = last_place(error, lambda file: file.startswith(ROOT))
    where = f"{at.filename.removeprefix(ROOT)}, line {at.lineno}" if at is not None else "Python"
    return _report(
        f"An exception in {where}, ended the run. This is a defect of kvproof, and there is no "
        "verdict.",
        DEFECT,
    )


def _is_of_author(file: str) -> bool:
    """Whether a file has checks or faults, and is not what asks or plants them."""
    return file.startswith(AUTHORS) and Path(file).stem not in MACHINERY


def _report(line: str, code: int) -> int:
    """Print a line on standard error. Return the exit code."""
    say(line, file=sys.stderr)
    return code
