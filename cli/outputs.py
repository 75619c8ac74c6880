"""What the options of a command line must keep together, whatever the command."""

import argparse
import os
from collections.abc import Sequence

from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown

OUTPUTS = (
    *("traces", "graph", "junit", "sarif", "summary", "table"),
    "out",
)
"""The options that name a file or a folder to be written."""


def check_values(arguments: Sequence[str]) -> None:
    """Raise UsageError for an empty value, as an unset variable of a shell gives it: as a path it
    would be the working folder."""
    for before, word in zip(["", *arguments], arguments, strict=False):
        option, is_joined, value = word.partition("=")
        if word == "" or (option.startswith("--") and is_joined and not value):
            what = option or before or "An argument"
            raise UsageError(f"The value of {shown(what)} is empty. Use a value, or leave it out.")


def check_apart(args: argparse.Namespace) -> None:
    """Raise UsageError where two options name the same file or folder to be written."""
    found: dict[str, str] = {}
    for name in OUTPUTS:
        path = getattr(args, name, None)
        if path is None:
            continue
        real = os.path.realpath(path)
        if real in found:
            raise UsageError(
                f"--{found[real]} and --{name} are both {shown(path)}. Use a path for each."
            )
        found[real] = name
