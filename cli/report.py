"""`kvproof report`: print a trace for a person."""

import argparse
import sys
from pathlib import Path

from kvproof.cli.finish import finish
from kvproof.model.errors import UsageError
from kvproof.model.files.reading import shown
from kvproof.model.traces.trace import Trace, records
from kvproof.model.traces.trace_reader import WHOLE, read
from kvproof.reports.terminal import show

HELP = "print a trace: what each event changed, and why the last one is wrong"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace file")


def run(args: argparse.Namespace) -> int:
    """Print the trace. The exit code is 0, because nothing is checked."""
    trace = read(args.trace)
    return finish(
        args,
        0,
        lambda code: {"command": "report", "exit_code": code, "trace": records(trace)},
        lambda: _print(args.trace, trace),
    )


def _print(path: Path, trace: Trace) -> None:
    try:
        show(sys.stdout, trace, path)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        # The reader checks each line by itself; here the changes are combined.
        raise UsageError(
            f"The changes in {shown(path)} cannot be combined to states ({error!r}). {WHOLE}"
        ) from error
