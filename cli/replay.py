"""`kvproof replay`: repeat the events of a trace, and compare; or carry out a plan again."""

import argparse
from contextlib import closing
from pathlib import Path
from typing import Any

from kvproof.cli import on_releases
from kvproof.cli import parser as options
from kvproof.cli.answer import tolerated_lines
from kvproof.cli.finish import finish
from kvproof.cli.machines import borrow, maker, undriven
from kvproof.gate.difference.workload import Engine
from kvproof.gate.side.plans import driven
from kvproof.invariants.registry import gravest
from kvproof.model import interruption
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.faults.fault import planted
from kvproof.model.faults.registry import fault_named
from kvproof.model.files.reading import shown
from kvproof.model.finding import Finding
from kvproof.model.plans.engine import EnginePlan
from kvproof.model.records.record import Record, read_either
from kvproof.model.severity import Severity
from kvproof.model.traces.trace import PlanRun, Trace
from kvproof.reports.document import of_outcome, plain
from kvproof.reports.screen import HANG, say
from kvproof.strategies.conformance.replay import Parting, Replay, replay
from kvproof.strategies.verdict import INTERRUPTED, Outcome, Verdict

DIFFERS = "DIFFERS"
"""Printed instead of a verdict if a trace without a finding differs at replay. Exit code 1."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `kvproof replay` to its parser."""
    parser.add_argument(
        "trace",
        type=Path,
        metavar="TRACE",
        help="a trace, or a plan of an engine core or of a connector",
    )
    options.add_machine(parser, default=None)
    options.add_vllm(parser)
    parser.add_argument(
        "--releases",
        nargs="*",
        metavar="X.Y.Z",
        help="replay on these releases of vLLM, and say which of them show the finding (without a "
        "name: the newest patch of each)",
    )
    options.add_fail_on(parser, Severity.BOOKKEEPING)
    parser.add_argument(
        "--trust",
        action="store_true",
        help="carry out a plan that names a module, a file or texts as settings: Python imports "
        "some of these",
    )


def run(args: argparse.Namespace) -> int:
    """Replay, and print whether the run is the same."""
    if args.releases is not None:
        return on_releases.run(args)
    trace = read_either(args.trace)
    if isinstance(trace, PlanRun):
        args.vllm = args.vllm or (_tree(args.trace, trace) if trace.tree else None)
        return carry_out(args, trace)
    if isinstance(trace, Record):
        raise UsageError(
            f"{shown(args.trace)} is a record, which has no prompts to run again. Use kvproof "
            "report to see its last events."
        )
    faults = [fault_named(name) for name in trace.faults]
    args.machine = args.machine or trace.machine
    if args.machine == "live" and args.vllm is None and trace.tree:
        args.vllm = _tree(args.trace, trace)
    if args.machine == "live" and faults:
        raise UsageError(
            f"{shown(args.trace)} is of the model with the fault {', '.join(trace.faults)}, and "
            "real vLLM has no faults. Use --machine model."
        )
    borrow(args.vllm, args.cache, live=args.machine == "live")
    replayed = Replay(Outcome(Verdict.UNKNOWN, reason=INTERRUPTED))
    with interruption.stoppable(), planted(*faults):
        chosen = maker(args.machine, faults)
        try:
            with closing(chosen.make(trace.cluster)) as machine:
                replayed = replay(machine, trace)
        except AdapterDrift as drift:
            replayed = Replay(undriven(drift))
    return finish(
        args,
        replayed.exit_code(args.fail_on),
        lambda: _output(args, trace, replayed),
        lambda: _print(args, trace, replayed),
    )


def _tree(path: Path, trace: Trace | PlanRun) -> str:
    """Return the folder of the vLLM that a run was recorded with. A run of a gate has that of head.
    Raises UsageError where it is gone: the installed vLLM would say nothing of it."""
    if not (Path(trace.tree) / "vllm").is_dir():
        raise UsageError(
            f"{shown(path)} is of the vLLM in {shown(trace.tree)}, which is not there any more. "
            "Use --vllm with a vLLM to replay it on."
        )
    return trace.tree


def _print(args: argparse.Namespace, trace: Trace, replayed: Replay) -> None:
    lines = _lines(f"on machine {args.machine}", args.machine, trace, replayed)
    for line in (*lines, *tolerated_lines(replayed.outcome, args.fail_on)):
        say(line, 12 if line.startswith("  ") else HANG)


def _lines(on: str, machine: str, trace: Trace, replayed: Replay) -> list[str]:
    """Say what the replay shows, and then the verdict."""
    count = len(trace.events)
    outcome, differs, parted = replayed.outcome, replayed.differs, replayed.parted
    wanted = trace.finding.invariant if trace.finding else ""
    if outcome.verdict is Verdict.VIOLATED and outcome.finding is not None:
        what = f"{outcome.finding.invariant}, {outcome.finding.sentence}"
        if differs is None:
            return [f"VIOLATED, reproduced {on} after {count} events: {what}"]
        first = f" The run first differs at {differs.sentence}."
        return [f"VIOLATED, found again {on} in another run: {what}.{first}"]
    if outcome.verdict is Verdict.UNKNOWN:
        if parted is None:
            return [f"UNKNOWN: {outcome.reason.rstrip('.')}"]
        known = f"whether {wanted} is shown again" if wanted else "whether the end is the same"
        return [
            f"NOT FOLLOWED: {parted.why or 'the machine does otherwise than the trace'}",
            *_beside(parted, count),
            f"UNKNOWN: {parted.step - 1} of {count} events were followed {on}, so {known} is not "
            "known",
        ]
    if not wanted:
        if differs is not None:
            return [f"{DIFFERS} at {differs.sentence}"]
        return [f"SAMPLED: {count} events {on} are equal, and no invariant is violated"]
    if parted is not None:
        how = f"{count - 1} events were followed, and the last one is another here"
    else:
        how = f"all {count} events were followed"
    lines = [f"NOT SHOWN AGAIN: {how}; {wanted} is not violated", *_beside(parted, count)]
    if differs is not None and differs.field not in ("event", "finding"):
        lines.append(f"The run first differs at {differs.sentence}.")
    if machine == "model" and trace.machine == "live":
        lines.append(
            "The model shows only what the events show: a mistake inside vLLM, as in a counter, is "
            "not the model's. To see it on real vLLM: --machine live"
        )
    return [*lines, f"SAMPLED: followed to the end {on}, and {wanted} is not shown again"]


def _beside(parted: Parting | None, count: int) -> list[str]:
    """Say what was recorded, and what the machine does."""
    if parted is None:
        return []
    here = f"not possible; it does {parted.does}" if parted.why and parted.does else parted.does
    return [
        f"  recorded: event {parted.step} of {count}, {parted.event}",
        f"  here:     {here or 'not possible'}",
    ]


def _output(args: argparse.Namespace, trace: Trace, replayed: Replay) -> dict[str, Any]:
    differs, parted = replayed.differs, replayed.parted
    fields = of_outcome(
        replayed.outcome,
        cluster=trace.cluster,
        faults=trace.faults,
        machine=args.machine,
        seed=trace.seed,
        trace=args.trace,
    )
    fields["followed"] = parted.step - 1 if parted else len(trace.events)
    if parted is not None:
        fields["parted"] = parted
    if differs is not None:
        fields["differs"] = differs
        if replayed.compared:
            fields["verdict"] = DIFFERS
    return fields


def carry_out(args: argparse.Namespace, planned: PlanRun) -> int:
    """Carry a plan out again, and print the checks that it breaks."""
    if args.machine == "model":
        raise UsageError(
            f"{shown(args.trace)} is a plan, which real vLLM alone carries out. Use --machine live."
        )
    if isinstance(planned.plan, EnginePlan):
        return _of_core(args, planned, planned.plan)
    from kvproof.cli import connector

    return connector.replay(args, planned, planned.plan)


def _of_core(args: argparse.Namespace, planned: PlanRun, plan: EnginePlan) -> int:
    """Start the engine of a plan, and print the checks that it breaks."""
    borrow(args.vllm, args.cache, live=True)
    outcome, found = Outcome(Verdict.UNKNOWN, reason=INTERRUPTED), list[Finding]()
    with interruption.stoppable():
        try:
            result = driven(Engine(shown(args.trace), plan))
            found = gravest(each.finding for each in result.breaks)
            outcome = Outcome(Verdict.SAMPLED)
            if found:
                outcome = Outcome(Verdict.VIOLATED, finding=found[0])
            elif result.without_loops:
                outcome = undriven(AdapterDrift(result.without_loops))
        except AdapterDrift as drift:
            outcome = undriven(drift)

    def printed() -> None:
        for line in planned.lines:
            say(line)
        what = "; ".join(f"{each.invariant}, {each.sentence}" for each in found)
        say(f"{outcome.verdict.value}: {what or outcome.reason or 'no check is broken'}")

    return finish(
        args,
        outcome.exit_code(args.fail_on),
        lambda: {
            **of_outcome(outcome, machine="live", seed=args.seed, trace=args.trace),
            **({"findings": [plain(each) for each in found]} if found else {}),
        },
        printed,
    )
