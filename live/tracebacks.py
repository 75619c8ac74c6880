"""The traceback of an error of vLLM, shortened to the lines of its own package."""

import os
import traceback
from collections.abc import Iterator
from pathlib import Path

from kvproof.model.files.reading import printable

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
    places = [(f.filename, f.lineno, f.line) for f in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno, error.text))
    for file, number, text in places:
        if (name := _inside(file, package)) is not None:
            yield f"{name}:{number}: {text or ''}"


def _inside(file: str, package: Path) -> str | None:
    """The path of a file in the package, from the folder of the package on; None for others."""
    path = Path(os.path.realpath(file))
    return f"{package.name}/{path.relative_to(package)}" if path.is_relative_to(package) else None


def _line(text: str) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= LINE_MAX else f"{text[:LINE_MAX]}..."
