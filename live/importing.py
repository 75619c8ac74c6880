"""Imports vLLM: the one guarded place.

An installed vLLM may fail at import with any error, print to standard output, or try to end the
process. vLLM also brings packages that kvproof does not need. Where pip takes them from another
build than torch (a CUDA build beside a CPU torch), they do not load, and vLLM fails because of
them. Those are hidden from it, as if they were not installed.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kvproof.live import environment  # noqa: F401 (before vLLM is imported)
from kvproof.live.availability import place
from kvproof.live.contract.lookup import last_line, not_there
from kvproof.model import interruption
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import printable
from kvproof.model.raised import places

BESIDE = ("torchvision", "torchaudio", "torchcodec")
"""Packages that vLLM requires beside torch. vLLM can be imported without them."""


OUT, ERR = 1, 2


class Hidden(NamedTuple):
    """A package that does not load. `why` is the last line of its error."""

    name: str
    version: str
    why: str


class Failure(NamedTuple):
    """Why an import failed: the last line of its error, empty where there was none, the lines of
    vLLM that led to it, and the module that is missing, if one is."""

    line: str = ""
    traceback: tuple[str, ...] = ()
    lacks: str = ""


class Imported(NamedTuple):
    """The result of importing vLLM: why it failed, the packages that were hidden from it, and the
    wall time in seconds."""

    failure: Failure
    hidden: tuple[Hidden, ...]
    seconds: float


@functools.cache
def imported(modules: tuple[str, ...] = ()) -> Imported:
    """Import vLLM, once. `modules` has the modules that everything needs: an error in one of them
    is an error of vLLM, because importing the package itself imports nearly nothing. Raises
    KeyboardInterrupt."""
    began = time.monotonic()
    with _quiet():
        hidden = () if "vllm" in sys.modules else tuple(_hidden())
        failures = (_failure(name) for name in ("vllm", *modules))
        failure = next((each for each in failures if each.line), Failure())
    return Imported(failure, hidden, time.monotonic() - began)


def _hidden() -> Iterator[Hidden]:
    """Hide the packages that do not load."""
    for name in BESIDE:
        if importlib.util.find_spec(name) is not None and (why := _failure(name).line):
            sys.modules[name] = None  # type: ignore[assignment]  # "there is no such package"
            yield Hidden(name, version(name), why)


def version(name: str) -> str:
    """The version of an installed package; "unknown" where its metadata is missing."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _failure(name: str) -> Failure:
    """Import a module. Returns its error; an empty one if there was none, or if the module does not
    exist."""
    try:
        importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, or a panic of a library in Rust
        interruption.check()  # what was a KeyboardInterrupt may arrive as another error
        if name != "vllm" and not_there(error, name):
            return Failure()
        lacks = error.name if isinstance(error, ModuleNotFoundError) else None
        return Failure(last_line(error), _traceback(error), lacks or "")
    interruption.check()  # or not arrive at all
    return Failure()


def _traceback(error: BaseException) -> tuple[str, ...]:
    try:
        return shortened(error, place())
    except UsageError:
        return ()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Send what is printed on standard output to standard error, because with --json standard
    output has one object and nothing else."""
    with contextlib.redirect_stdout(sys.stderr):
        _flush()
        kept = os.dup(OUT)
        os.dup2(ERR, OUT)
        try:
            yield
        finally:
            _flush()
            os.dup2(kept, OUT)
            os.close(kept)


def _flush() -> None:
    """Write out what Python has buffered for standard output."""
    if sys.__stdout__ is not None:
        sys.__stdout__.flush()


FRAMES_MAX = 8
"""The number of lines of a package that are shown: the last ones."""

LINE_MAX = 200
"""The number of characters of a line that are shown."""


def shortened(error: BaseException, package: Path) -> tuple[str, ...]:
    """The lines of the package that led to an error, as path, number and text, and the error at the
    end. Errors that it was raised from come first."""
    cause = error.__cause__
    first = shortened(cause, package) if cause is not None and cause is not error else ()
    frames = list(_frames(error, package))[-FRAMES_MAX:]
    last = traceback.format_exception_only(error)[-1]
    return (*first, *(_line(text) for text in (*frames, last)))


def _frames(error: BaseException, package: Path) -> Iterator[str]:
    lines = [(each.filename, each.lineno, each.line) for each in places(error)]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append((error.filename, error.lineno, error.text))
    for file, number, text in lines:
        if (name := _inside(file, package)) is not None:
            yield f"{name}:{number}: {text or ''}"


def _inside(file: str, package: Path) -> str | None:
    """The path of a file in the package, from the folder of the package on; None for others."""
    path = Path(os.path.realpath(file))
    return f"{package.name}/{path.relative_to(package)}" if path.is_relative_to(package) else None


def _line(text: str) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= LINE_MAX else f"{text[:LINE_MAX]}..."
