"""`kvproof report`: print a trace for a person."""

import argparse
import sys
from pathlib import Path

from kvproof.cli.answer import print_json
from kvproof.model.traces.trace import records
from kvproof.model.traces.trace_reader import read
from kvproof.reports.terminal import show


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace file")


def run(args: argparse.Namespace) -> int:
    """Print the trace. The exit code is 0, because nothing is checked."""
    trace = read(args.trace)
    if args.json:
        print_json({"command": "report", "exit_code": 0, "trace": records(trace)})
        return 0
    show(sys.stdout, trace, args.trace)
    return 0
