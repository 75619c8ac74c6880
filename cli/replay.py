"""`kvproof replay`: repeat the events of a trace or a record, and compare."""

import argparse
from dataclasses import replace
from pathlib import Path

from kvproof.cli import parser as options
from kvproof.cli.finish import finish
from kvproof.cli.graver import tolerated_lines
from kvproof.cli.machines import borrow, maker, running, undriven
from kvproof.model import interruption
from kvproof.model.errors import AdapterDrift
from kvproof.model.faults.fault import rules_with
from kvproof.model.faults.registry import fault_named
from kvproof.model.machine import Machine
from kvproof.model.records.as_trace import NotFollowed, as_trace
from kvproof.model.records.record import Record, read_either
from kvproof.model.traces.trace import Trace
from kvproof.reports.output.search import Difference
from kvproof.reports.output.search import Replayed as ReplayedOutput
from kvproof.reports.output.verdict import verdict_output
from kvproof.reports.screen import say
from kvproof.strategies.conformance.record_end import end_differs
from kvproof.strategies.conformance.replay import Replayed, replay
from kvproof.strategies.verdict import INTERRUPTED, Outcome, Verdict

DIFFERS = "DIFFERS"
"""Printed instead of a verdict if a trace without a finding differs at replay. Exit code 1."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a trace or a record")
    options.add_machine(parser, default=None)
    options.add_vllm(parser)
    options.add_fail_on(parser)


def run(args: argparse.Namespace) -> int:
    """Replay, and print whether the run is the same."""
    found = read_either(args.trace)
    try:
        trace = as_trace(found) if isinstance(found, Record) else found
    except NotFollowed as error:
        return _not_followed(args, str(error))
    if isinstance(found, Record) and args.machine is None:
        args.machine = "model"
    rules = rules_with(fault_named(name) for name in trace.faults)
    args.machine = args.machine or trace.machine
    borrow(args.vllm, args.cache, live=args.machine == "live")
    replayed = Replayed(Outcome(Verdict.UNKNOWN, reason=INTERRUPTED))
    with interruption.stoppable():
        chosen = maker(args.machine, rules, cache=args.cache)
        try:
            with running(trace.cluster, chosen.make) as machine:
                replayed = replay(machine, trace)
                if isinstance(found, Record):
                    replayed = _of_record(machine, replayed, found)
        except AdapterDrift as drift:
            replayed = Replayed(undriven(drift))
        replayed = replace(replayed, outcome=chosen.timed(replayed.outcome))
    return finish(
        args,
        replayed.exit_code(args.fail_on),
        lambda code: _output(args, trace, replayed, code),
        lambda: _print(args, trace, replayed),
    )


def _of_record(machine: Machine, replayed: Replayed, record: Record) -> Replayed:
    """Where a machine differs from a record without a finding, this may be a mistake of either, or
    the record may lack what made the difference."""
    if not replayed.compared:
        return replayed
    if replayed.differs is None:
        replayed = replace(replayed, differs=end_differs(machine.state, record))
    if replayed.differs is not None:
        reason = "the machine does not follow the record"
        outcome = replace(replayed.outcome, verdict=Verdict.UNKNOWN, reason=reason)
        return replace(replayed, outcome=outcome, compared=False)
    return replayed


def _not_followed(args: argparse.Namespace, why: str) -> int:
    """No machine can follow this record."""
    outcome = Outcome(Verdict.UNKNOWN, reason=f"no machine can follow this record: {why}")
    return finish(
        args,
        outcome.exit_code(args.fail_on),
        lambda code: verdict_output(
            ReplayedOutput, outcome, code=code, machine=args.machine or "model", seed=args.seed
        ),
        lambda: say(f"UNKNOWN: {outcome.reason}"),
    )


def _print(args: argparse.Namespace, trace: Trace, replayed: Replayed) -> None:
    for line in (
        _sentence(args, trace, replayed),
        *tolerated_lines(replayed.outcome, args.fail_on),
    ):
        say(line)


def _sentence(args: argparse.Namespace, trace: Trace, replayed: Replayed) -> str:
    on, events = f"on machine {args.machine}", len(trace.events)
    outcome, differs = replayed.outcome, replayed.differs
    elsewhere = f" The run first differs at {differs.sentence}." if differs else ""
    if outcome.verdict is Verdict.UNKNOWN:
        return f"UNKNOWN: {outcome.reason.rstrip('.')}.{elsewhere}"
    if outcome.verdict is Verdict.VIOLATED and outcome.finding is not None:
        what = f"{outcome.finding.invariant}, {outcome.finding.sentence}"
        if differs is None:
            return f"VIOLATED, reproduced {on} after {events} events: {what}"
        return f"VIOLATED, found again {on} in another run: {what}.{elsewhere}"
    if trace.finding is not None:
        return f"SAMPLED: {trace.finding.invariant} is not found again {on}.{elsewhere}"
    if differs is not None:
        return f"{DIFFERS} at {differs.sentence}"
    return f"SAMPLED: {events} events {on} are equal, and no invariant is violated"


def _output(
    args: argparse.Namespace, trace: Trace, replayed: Replayed, code: int
) -> ReplayedOutput:
    differs = replayed.differs
    more: dict[str, object] = {}
    if differs is not None:
        more["differs"] = Difference(**differs._asdict())
        if replayed.compared:
            more["verdict"] = DIFFERS
    return verdict_output(
        ReplayedOutput,
        replayed.outcome,
        code=code,
        cluster=trace.cluster,
        faults=trace.faults,
        machine=args.machine,
        seed=trace.seed,
        trace=args.trace,
        more=more,
    )
