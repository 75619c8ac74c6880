"""This module writes the files of `kvproof gate` beside its answer: SARIF and Markdown, each into a
new file, and in GitHub Actions annotations on the changed lines and the summary of the step.

On GitHub the file of the summary exists already and belongs to the step: the result is appended to
it, without an option. Annotations go to standard error, which the runner reads too, so that
standard output stays one object with `--json`. Neither is a result that was asked for, so a summary
that cannot be written changes no exit code.
"""

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kvproof.cli import parser as options
from kvproof.cli.finish import File
from kvproof.gate.formats import github, markdown, sarif
from kvproof.model.errors import UsageError
from kvproof.model.files.writing import append, write_new
from kvproof.reports.gate_output import Gate
from kvproof.reports.screen import say

FORMATS = {
    "sarif": (sarif.document, "SARIF 2.1.0, for code scanning,"),
    "summary": (markdown.document, "Markdown, as for the annotation of a CI system,"),
}
"""For each option its format, and the name of it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for files to the parser of `kvproof gate`."""
    for name, (_, what) in FORMATS.items():
        parser.add_argument(
            f"--{name}",
            type=options.new_file,
            metavar="FILE",
            help=f"write the result as {what} to a new file",
        )
    parser.add_argument(
        "--annotations",
        choices=("auto", "github", "none"),
        default="auto",
        help="annotate the changed lines on GitHub, and write the summary of the step (default: "
        "auto, which does so where GITHUB_ACTIONS is true)",
    )


def require_apart(args: argparse.Namespace) -> None:
    """Refuse one path for two files before the work is done. Raises UsageError."""
    paths = [path.resolve() for name in FORMATS if (path := getattr(args, name))]
    if len({*paths}) < len(paths):
        raise UsageError("Two of the files of the gate have one path. Use a path for each.")


def files(args: argparse.Namespace, gate: Gate) -> list[File]:
    """Return the files that were asked for, and what GitHub Actions takes where it runs the
    command."""
    asked = [(getattr(args, name), document) for name, (document, _) in FORMATS.items()]
    found = [File(partial(_written, path, document, gate)) for path, document in asked if path]
    on_github = os.environ.get("GITHUB_ACTIONS") == "true"
    if args.annotations == "github" or (args.annotations == "auto" and on_github):
        found.append(File(lambda: _annotated(gate)))
    return found


def _written(path: Path, document: Callable[[Gate], str], gate: Gate) -> Path:
    return write_new(path, document(gate))


def _annotated(gate: Gate) -> Path:
    """Print the annotations, and append to the summary of the step. Return the path of the
    summary."""
    for command in github.commands(gate):
        say(command, hang=0, file=sys.stderr)
    path = Path(os.environ.get("GITHUB_STEP_SUMMARY") or os.devnull)
    try:
        append(path, markdown.document(gate))
    except UsageError as error:
        say(str(error), file=sys.stderr)
    return path
