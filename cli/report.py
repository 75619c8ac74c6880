"""`kvproof report`: print a trace or a record for a person."""

import argparse
import sys
from pathlib import Path

from msgspec import to_builtins

from kvproof.cli.finish import finish
from kvproof.invariants.registry import check_named
from kvproof.model.records.record import Record, read_either, record_lines
from kvproof.model.traces.trace import records
from kvproof.reports import record as of_record
from kvproof.reports.output.lists import Report
from kvproof.reports.terminal import show
from kvproof.strategies.count_conformance import CONFORMANCE


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace or a record")


def run(args: argparse.Namespace) -> int:
    """Print the file. The exit code is 0, because nothing is checked."""
    trace = read_either(args.trace)
    if isinstance(trace, Record):
        return _record(args, trace)
    if trace.finding is not None and trace.finding.invariant != CONFORMANCE:
        check_named(trace.finding.invariant)
    return finish(
        args,
        0,
        lambda code: Report(exit_code=code, trace=tuple(records(trace))),
        lambda: show(sys.stdout, trace, args.trace),
    )


def _record(args: argparse.Namespace, record: Record) -> int:
    return finish(
        args,
        0,
        lambda code: Report(exit_code=code, trace=tuple(map(to_builtins, record_lines(record)))),
        lambda: of_record.show(sys.stdout, record, args.trace),
    )
