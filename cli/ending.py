"""This module ends the program: each way to end has one exit code and one message."""

import atexit
import contextlib
import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import NamedTuple, NoReturn

from kvproof.cli import streams
from kvproof.model import interruption
from kvproof.model.errors import UsageError
from kvproof.reports import live_line

BAD_USAGE, DEFECT = 2, 3

ROOT = f"{Path(__file__).parents[1]}{os.sep}"
"""Where the code of kvproof is."""

AUTHORS = ("invariants/", "model/faults/")
"""Where authors write checks and faults."""

MACHINERY = ("check", "fault", "registry")
"""The modules there that are no author's."""


def program(module: str) -> NoReturn:
    """Run the function `main` of a module, between the start and the end of the process, and end
    the process with its exit code."""
    try:
        interruption.install()
        streams.prepare()
        sys.unraisablehook = _unraisable
        # Hypothesis would keep its caches in the working folder; without them it works as well.
        os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", os.devnull)
        live_line.show("kvproof: starting")
        code = _run(module) if _has_folder() else BAD_USAGE
    except streams.OutputLost as lost:
        code = _report(str(lost), streams.EXIT_CODE)
    except streams.ReaderGone:
        live_line.clear()
        code = streams.READER_GONE
    except BaseException as error:  # an import may turn a KeyboardInterrupt into any other error
        if interruption.requested() or isinstance(error, KeyboardInterrupt):
            interruption.caught()
            code = _report("Interrupted.", DEFECT)
        else:
            code = _defect()
    interruption.ignore()
    _leave(interruption.exit_code(code))


def _has_folder() -> bool:
    """Whether the working folder exists; it may have been removed."""
    try:
        os.getcwd()
    except OSError as error:
        _report(
            f"The working folder cannot be used ({error.strerror}). Use a folder that exists.",
            BAD_USAGE,
        )
        return False
    return True


def _leave(code: int) -> NoReturn:
    """End the process with this exit code. Python would first take vLLM's modules apart, which
    lasts seconds, and a signal would end it with another code; threads would keep it."""
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)


def _unraisable(about: "sys.UnraisableHookArgs", /) -> None:
    """Print an error that cannot be raised, as one in a finalizer. After an interruption nothing is
    printed: a KeyboardInterrupt that is lost there is raised again, and an object of a library
    whose `__init__` was interrupted lacks what its finalizer uses."""
    if not interruption.requested():
        sys.__unraisablehook__(about)


def _run(module: str) -> int:
    try:
        code = _ended(module)
        sys.stdout.flush()
    finally:
        live_line.clear()
    return code


def _ended(module: str) -> int:
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
    except Exception:
        if interruption.requested():
            raise
        return _defect()


def _defect() -> int:
    """Print the exception that is handled, with its traceback. Return the exit code."""
    live_line.clear()
    with contextlib.suppress(Exception):  # where no file can be opened, there are no lines of code
        sys.excepthook(*sys.exc_info())
    places = _places()
    own = [place for place in places if place.is_of_author]
    if own:
        return _report(
            f"An exception in {own[-1].words} ended the run, and there is no verdict. Use a check "
            "or a fault there that takes what it is given.",
            DEFECT,
        )
    where = f"An exception in {places[-1].words}, ended the run. " if places else ""
    return _report(f"{where}This is a defect of kvproof, and there is no verdict.", DEFECT)


class _Place(NamedTuple):
    """A line of kvproof's code: the file, from the folder of kvproof on."""

    file: str
    line: int

    @property
    def is_of_author(self) -> bool:
        """Whether it is in a check or a fault, and not in what asks or plants them."""
        return self.file.startswith(AUTHORS) and Path(self.file).stem not in MACHINERY

    @property
    def words(self) -> str:
        """The place in a sentence."""
        return f"{self.file}, line {self.line}"


def _places() -> list[_Place]:
    """Return the lines of kvproof's code that the exception that is handled went through, the
    innermost last."""
    frames = traceback.walk_tb(sys.exc_info()[2])
    named = ((frame.f_code.co_filename, line) for frame, line in frames)
    return [_Place(file[len(ROOT) :], line) for file, line in named if file.startswith(ROOT)]


def _report(line: str, code: int) -> int:
    """Print a line on standard error. Return the exit code."""
    live_line.clear()
    print(line, file=sys.stderr)
    return code
