"""`kvproof replay`: take the events of a trace again, and compare."""

import argparse
from pathlib import Path

from kvproof.cli import parser as options
from kvproof.cli.answer import print_json
from kvproof.cli.machines import borrow, maker, running, undriven
from kvproof.model.errors import AdapterDrift
from kvproof.model.faults.fault import rules_with
from kvproof.model.faults.registry import fault_named
from kvproof.reports.trace import Trace
from kvproof.reports.trace_reader import read
from kvproof.reports.verdict_json import verdict_object
from kvproof.strategies.replay import Replayed, replay
from kvproof.strategies.verdict import Verdict

HELP = "take the events of a trace again, and compare states and finding"

DIFFERS = "DIFFERS"
"""What `--json` says in place of a verdict where the trace was not reproduced. Exit code 1."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace file")
    options.add_machine(parser)
    options.add_release(parser)


def run(args: argparse.Namespace) -> int:
    """Replay, and print whether it is the same again."""
    trace = read(args.trace)
    rules = rules_with(fault_named(name) for name in trace.faults)
    borrow(args.release, args.cache, live=args.machine == "live")
    chosen = maker(args.machine, rules)
    try:
        with running(chosen.make, trace.cluster) as machine:
            replayed = replay(machine, trace)
    except AdapterDrift as drift:
        replayed = Replayed(undriven(drift))
    if args.json:
        print_json(_object(args, trace, replayed))
    else:
        print(_sentence(args, trace, replayed))
    return replayed.exit_code


def _sentence(args: argparse.Namespace, trace: Trace, replayed: Replayed) -> str:
    if replayed.differs is not None:
        return f"{DIFFERS} at {replayed.differs.sentence}"
    if replayed.outcome.verdict is Verdict.UNKNOWN:
        return f"UNKNOWN: {replayed.outcome.reason}"
    if replayed.outcome.verdict is Verdict.VIOLATED and trace.finding is not None:
        return (
            f"VIOLATED, reproduced on machine {args.machine} after {len(trace.events)} events: "
            f"{trace.finding.invariant}, {trace.finding.sentence}"
        )
    return (
        f"SAMPLED: {len(trace.events)} events on machine {args.machine} are equal, "
        "and no invariant breaks"
    )


def _object(args: argparse.Namespace, trace: Trace, replayed: Replayed) -> dict[str, object]:
    record = verdict_object(
        "replay",
        replayed.outcome,
        cluster=trace.cluster,
        faults=trace.faults,
        machine=args.machine,
        seed=trace.seed,
        trace=args.trace,
    )
    if replayed.differs is not None:
        differs = replayed.differs._asdict()
        record |= {"verdict": DIFFERS, "exit_code": replayed.exit_code, "differs": differs}
    return record
