"""This module ends every command: the verdict is printed first, then its files are written.

A file that cannot be written takes nothing away from the verdict. Its error is printed after the
verdict, and the exit code changes only where it would be 0. With `--json` the files come first,
because the object says which of them were written; and a trace does, because the text names it.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kvproof.model import interruption
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown
from kvproof.model.files.writing import write_new
from kvproof.reports.output.base import OutputPart, encoded
from kvproof.reports.screen import say

NOT_WRITTEN = 2
"""The exit code where all holds and a file cannot be written."""

NOT_FINISHED = (
    "A file was not written, because the command was interrupted. Use the same command again."
)


class File:
    """A file (or a folder) that is written after the verdict. `path` is set as soon as it exists.

    `write` writes it, returns its path, and raises UsageError where that fails. `line` is the text
    that is printed about the written file. A file that the text names is written `first`; its error
    is printed after the verdict all the same.
    """

    def __init__(
        self,
        write: Callable[[], Path],
        line: Callable[[Path], str] | None = None,
        *,
        first: bool = False,
    ) -> None:
        self._write = write
        self._line = line
        self.first = first
        self._tried = False
        self.path: Path | None = None
        self.error = ""

    def write(self) -> None:
        """Write the file, once. Prints its error on standard error, and remembers it."""
        self.attempt()
        if self.error:
            say(self.error, file=sys.stderr)

    def attempt(self) -> None:
        """Write the file, once, and remember its error."""
        if self._tried:
            return
        self._tried = True
        with interruption.stoppable() as stopped:
            try:
                self.path = self._write()
            except UsageError as error:
                self.error = str(error)
        if stopped:
            self.error = NOT_FINISHED

    @property
    def line(self) -> str | None:
        """The line about the file; None where it was not written or nothing is printed about it."""
        return self._line(self.path) if self._line and self.path else None


def fixed(path: Path, write: Callable[[], None], line: Callable[[Path], str] | None = None) -> File:
    """Return a file whose path the user has chosen."""

    def written() -> Path:
        write()
        return path

    return File(written, line)


def page_file(path: Path, html: str) -> File:
    """Return the file of a page for a browser, with the line that says where it is."""
    return fixed(path, lambda: write_new(path, html), lambda _: f"\nThe page is in {shown(path)}.")


def finish(
    args: argparse.Namespace,
    code: int,
    output: Callable[[int], OutputPart],
    text: Callable[[], None],
    files: Sequence[File] = (),
) -> int:
    """Print an answer and write its files. Returns the exit code of the process.

    `code` is the exit code of the verdict. `output` makes the object of `--json` from the final
    exit code, after the files were written. `text` prints the answer for a person.
    """
    if args.json:
        _write(files)
        code = _final(code, files)
        print(encoded(output(code)))
        return code
    for file in files:
        if file.first:
            file.attempt()
    try:
        text()
        sys.stdout.flush()
    finally:
        _write(files)  # also where standard output is closed
    for file in files:
        if file.line is not None:
            print(file.line)
    return _final(code, files)


def _write(files: Sequence[File]) -> None:
    for file in files:
        file.write()


def _final(code: int, files: Sequence[File]) -> int:
    failed = any(file.error for file in files)
    return interruption.exit_code(code or (NOT_WRITTEN if failed else 0))
