"""This module ends every command: the verdict is printed first, then its files are written.

A file that cannot be written takes nothing away from the verdict. Its error is printed after the
verdict, and the exit code changes only where it would be 0. With `--json` the files come first,
because the object says which of them were written; and a trace does, because the text names it.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvproof.model import interruption
from kvproof.model.errors import UsageError
from kvproof.reports.document import document
from kvproof.reports.screen import clear, say

NOT_WRITTEN = 2
"""The exit code where all holds and a file cannot be written."""

NOT_FINISHED = (
    "A file was not written, because the command was interrupted. Use the same command again."
)


@dataclass
class File:
    """A file that is written with an answer. `write` writes it, returns its path, and raises
    UsageError where that fails. `line` is the text that is printed about the written file. A file
    that the text names is written `first`. `path` or `error` says what has become of it."""

    write: Callable[[], Path]
    line: Callable[[Path], str] | None = None
    first: bool = False
    path: Path | None = None
    error: str = ""

    def attempt(self) -> None:
        """Write the file, once."""
        if self.path or self.error:
            return
        with interruption.stoppable() as stopped:
            try:
                self.path = self.write()
            except UsageError as error:
                self.error = str(error)
        if stopped:
            self.error = NOT_FINISHED


def finish(
    args: argparse.Namespace,
    code: int,
    output: Callable[[], Any],
    text: Callable[[], None],
    files: Sequence[File] = (),
) -> int:
    """Print an answer and write its files. Returns the exit code of the process.

    `code` is the exit code of the verdict. `output` makes the fields of the object of `--json`,
    after the files were written. `text` prints the answer for a person.
    """
    clear()
    if args.json:
        _write(files)
        code = _final(code, files)
        print(document(args.command, code, output()))
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
        if file.line and file.path:
            print(file.line(file.path))
    return _final(code, files)


def _write(files: Sequence[File]) -> None:
    """Write the files that are not written yet. Each error is printed on standard error."""
    for file in files:
        file.attempt()
        if file.error:
            say(file.error, file=sys.stderr)


def _final(code: int, files: Sequence[File]) -> int:
    failed = any(file.error for file in files)
    return interruption.exit_code(code or (NOT_WRITTEN if failed else 0))
