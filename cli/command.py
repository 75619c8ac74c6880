"""A command is a module with its options and a function that runs it."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown
from kvproof.reports.screen import folded


class Command(Protocol):
    """One command. `run` returns the exit code."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of this command."""

    def run(self, args: argparse.Namespace) -> int:
        """Run the command."""


def refuse_empty(arguments: Sequence[str]) -> None:
    """Raise UsageError for an empty value, as an unset variable of a shell gives it: as a path it
    would be the working folder."""
    for before, word in zip(["", *arguments], arguments, strict=False):
        option, is_joined, value = word.partition("=")
        if word == "" or (option.startswith("--") and is_joined and not value):
            what = option or before or "An argument"
            raise UsageError(f"The value of {shown(what)} is empty. Use a value, or leave it out.")


REASON_MAX = 300
"""The number of characters of what is wrong with a command line."""


class Formatter(argparse.HelpFormatter):
    """Breaks the lines of a text between words alone, and keeps those that it has."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return folded(text, width, hang=0)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = (part for line in text.splitlines() for part in folded(line, width, hang=0))
        return "\n".join(indent + each for each in lines)


class Parser(argparse.ArgumentParser):
    """This parser raises its errors as usage errors."""

    def __init__(self, prog: str | None = None, **options: Any) -> None:
        super().__init__(prog, formatter_class=Formatter, **options)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse options that the command does not know, so that the error names the command."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print --help. Unlike argparse, this raises where it cannot be printed."""
        (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        reason = message.rstrip(".")
        reason = reason if len(reason) <= REASON_MAX else f"{reason[:REASON_MAX]}..."
        raise UsageError(
            f"The command line is wrong: {reason}. Use {self.prog} --help to see its options."
        )
