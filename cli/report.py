"""`kvproof report`: print a trace for a person."""

import argparse
import sys
from pathlib import Path

from kvproof.cli.finish import finish
from kvproof.invariants.registry import check_named
from kvproof.model.traces.trace import records
from kvproof.model.traces.trace_reader import read
from kvproof.reports.output.lists import Report
from kvproof.reports.terminal import Extra, show
from kvproof.strategies.count_conformance import CONFORMANCE


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace file")
    parser.add_argument(
        "--all", action="store_true", help="also show what does not concern the finding"
    )


def run(args: argparse.Namespace) -> int:
    """Print the trace. The exit code is 0, because nothing is checked."""
    trace = read(args.trace)
    if trace.finding is not None and trace.finding.invariant != CONFORMANCE:
        check_named(trace.finding.invariant)
    return finish(
        args,
        0,
        lambda code: Report(exit_code=code, trace=tuple(records(trace))),
        lambda: show(sys.stdout, trace, Extra(args.trace, whole=args.all)),
    )
