"""This module ends a search: it prints the verdict and writes the trace."""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from kvproof.cli.finish import File, finish
from kvproof.cli.machines import Maker
from kvproof.cli.parser import Setup
from kvproof.invariants.check import Check
from kvproof.model import interruption
from kvproof.model.config import Cluster
from kvproof.model.errors import AdapterDrift
from kvproof.model.events import Event
from kvproof.model.faults.fault import Fault, planted
from kvproof.model.finding import Finding
from kvproof.model.severity import Severity
from kvproof.model.traces.trace import Trace, write_in
from kvproof.reports.document import of_outcome
from kvproof.reports.screen import say
from kvproof.reports.terminal import Extra, show
from kvproof.strategies.conformance.replay import record
from kvproof.strategies.verdict import Outcome, Verdict

NAMES_SHOWN = 4
"""Names of clusters, or of checks, in the text of an answer."""


def traced(setup: Setup, maker: Maker, outcome: Outcome, seed: int) -> Trace | None:
    """Return the trace of a violation; None if there are no events (a refuted obligation has
    numbers instead)."""
    if outcome.verdict is not Verdict.VIOLATED or not outcome.events:
        return None
    cluster = outcome.cluster or setup.cluster
    return recorded(cluster, outcome.events, outcome.finding, setup.faults, maker, seed)


def recorded(
    cluster: Cluster,
    events: tuple[Event, ...],
    finding: Finding | None,
    faults: tuple[Fault, ...],
    maker: Maker,
    seed: int,
) -> Trace:
    """Drive a fresh machine through a run, and return the trace. It has no states where the machine
    cannot be driven through them again."""
    changes = None
    with (
        suppress(AdapterDrift),
        interruption.stoppable(),
        planted(*faults),
        closing(maker.make(cluster)) as machine,
    ):
        changes = record(machine, events)
    return Trace(
        cluster=cluster,
        events=events,
        changes=changes,
        finding=finding,
        faults=tuple(fault.name for fault in faults),
        machine=maker.name,
        seed=seed,
        vllm=maker.vllm,
    )


def trace_file(trace: Trace, folder: Path) -> File:
    """Return a new file for a trace. It is written first, because the text has the command that
    replays it."""
    stem = trace.finding.invariant if trace.finding else "violation"
    return File(lambda: write_in(folder, stem, trace), first=True)


def answer(
    args: argparse.Namespace,
    setup: Setup,
    maker: Maker,
    outcome: Outcome,
    *,
    before: Iterable[str] = (),
    details: Iterable[str] = (),
) -> int:
    """Print an outcome, with its trace if it has one, the lines `before` the verdict and more
    `details` after it. The trace is written too. Returns the exit code."""
    trace = traced(setup, maker, outcome, args.seed)
    kept = trace_file(trace, args.traces) if trace else None

    def output() -> dict[str, Any]:
        return of_outcome(
            outcome,
            cluster=None if setup.wide else setup.cluster,
            faults=setup.fault_names,
            machine=maker.name,
            seed=args.seed,
            trace=kept.path if kept else None,
        )

    def text() -> None:
        tolerated = tolerated_lines(outcome, args.fail_on)
        if trace is None:
            for line in (*before, summary(outcome, setup), *tolerated, *details):
                say(line)
            return
        lines = [*details, *before, *tolerated]
        show(
            sys.stdout,
            trace,
            Extra(
                kept.path if kept else None,
                rest=(*lines, *([""] if lines else ()), summary(outcome, setup)),
            ),
        )

    code = outcome.exit_code(args.fail_on)
    return finish(args, code, output, text, [kept] if kept else ())


def summary(outcome: Outcome, setup: Setup) -> str:
    """Return the verdict in one line, with the coverage and, for UNKNOWN, the reason."""
    covered = ", ".join(
        f"{name} {f'{value:.3g}' if isinstance(value, float) else value}"
        for name, value in outcome.coverage.items()
        if isinstance(value, int | float | str)
    )
    faults = f" with {', '.join(setup.fault_names)}" if setup.faults else ""
    why = f": {outcome.reason.rstrip('.')}" if outcome.reason else ""
    where = outcome.cluster if setup.wide else setup.cluster
    name = (
        f"cluster {where.name}"
        if where
        else f"{len(outcome.coverage.get('clusters', ()))} clusters"
    )
    return (
        f"{outcome.verdict.value}{why} - {name}{faults}: "
        f"{covered or 'nothing covered'} ({outcome.seconds:.1f} s)"
    )


def judged_lines(judged: Mapping[str, int]) -> list[str]:
    """Name the checks that had nothing to judge, as far as a line has room; of a few checks, say
    how often each of the others had something to judge."""
    silent = [name for name, times in judged.items() if not times]
    if len(silent) > NAMES_SHOWN:
        return [f"{len(silent)} of {len(judged)} checks had nothing to judge (--json says which)."]
    lines = [f"Had nothing to judge: {', '.join(silent)}."] if silent else []
    if len(silent) < len(judged) <= NAMES_SHOWN:
        each = (f"{name} {times:,} times" for name, times in judged.items() if times)
        lines.append(f"Judged: {', '.join(each)}.")
    return lines


def with_graver(
    found: Outcome,
    setup: Setup,
    fail_on: Severity,
    search: Callable[[Setup], Outcome],
    checks: Iterable[Check],
) -> Outcome:
    """Return the outcome of a search, or of a second search for the more severe invariants: a
    finding that does not fail the run must not hide one that does.

    The second search counts if `found` is tolerated and the second search finds a violation or is
    incomplete. `checks` are the invariants of a search without --invariant.
    """
    if found.finding is None or not found.tolerated(fail_on):
        return found
    chosen = setup.invariants or checks
    grave = [i for i in chosen if i.severity is None or i.severity <= fail_on]
    if not grave:
        return found
    second = search(setup._replace(invariants=grave))
    if second.verdict in (Verdict.VIOLATED, Verdict.UNKNOWN):
        return dataclasses.replace(second, beside=found.finding)
    return dataclasses.replace(found, graver=second)


def tolerated_lines(outcome: Outcome, fail_on: Severity) -> list[str]:
    """Return the line about a violation that does not fail the run; none if there is no such
    violation."""
    if outcome.severity is not None and outcome.tolerated(fail_on):
        graver = outcome.graver
        rest = (
            f" A search for more severe ones found none ({graver.verdict.value})." if graver else ""
        )
        return [
            f"The severity of this violation is {outcome.severity.words}, which does not "
            f"fail the run (--fail-on {fail_on.option}).{rest}"
        ]
    beside = outcome.beside
    return [f"also found: {beside.invariant}, {beside.sentences[-1]}"] if beside else []
