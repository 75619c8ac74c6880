"""How a search ends: the trace is kept, the answer is printed, the exit code follows."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kvproof.cli.graver import told
from kvproof.cli.machines import Maker, running
from kvproof.cli.parser import Setup
from kvproof.invariants.registry import CHECKS
from kvproof.model.traces.trace import Trace, fresh_path, write
from kvproof.reports.terminal import show
from kvproof.reports.verdict_json import verdict_object
from kvproof.strategies.conformance.consequence import leads_to
from kvproof.strategies.conformance.policy import KINDS
from kvproof.strategies.conformance.replay import record
from kvproof.strategies.verdict import Outcome, Verdict


class Kept(NamedTuple):
    """A trace, and the file it is in."""

    path: Path
    trace: Trace


def keep(setup: Setup, maker: Maker, outcome: Outcome, seed: int, folder: Path) -> Kept | None:
    """Write the trace of a violation to a new file. None where there are no events (a refuted
    obligation has numbers instead)."""
    if outcome.verdict is not Verdict.VIOLATED or not outcome.events:
        return None
    cluster = outcome.cluster or setup.cluster
    with running(maker.make, cluster) as machine:
        changes = record(machine, outcome.events)
    trace = Trace(
        cluster=cluster,
        events=outcome.events,
        changes=changes,
        finding=outcome.finding,
        faults=setup.fault_names,
        machine=maker.name,
        seed=seed,
        vllm=maker.vllm,
    )
    path = fresh_path(folder, outcome.finding.invariant if outcome.finding else "violation")
    write(path, trace)
    return Kept(path, trace)


def followed(setup: Setup, maker: Maker, outcome: Outcome) -> Outcome:
    """The outcome with what it leads to, where its finding is of a guard. Known deviations that are
    met on the way are not what it leads to."""
    known = CHECKS.get(outcome.finding.invariant) if outcome.finding else None
    if known is None or known.kind != "guard":
        return outcome
    with running(maker.search, outcome.cluster or setup.cluster) as machine:
        return dataclasses.replace(outcome, leads_to=leads_to(machine, outcome.events))


def answer(args: argparse.Namespace, setup: Setup, maker: Maker, outcome: Outcome) -> int:
    """Print an outcome, with its trace if it has one. Returns the exit code."""
    outcome = followed(setup, maker, outcome)
    kept = keep(setup, maker, outcome, args.seed, args.traces)
    if args.json:
        print_json(
            verdict_object(
                args.command,
                outcome,
                cluster=setup.cluster,
                faults=setup.fault_names,
                machine=maker.name,
                seed=args.seed,
                trace=kept.path if kept else None,
                fail_on=args.fail_on,
            )
        )
        return outcome.exit_code(args.fail_on)
    if kept is not None:
        show(sys.stdout, kept.trace, kept.path, outcome.leads_to)
        print()
    print(summary(outcome, setup))
    print(told(outcome, args.fail_on), end="")
    print(known(outcome), end="")
    return outcome.exit_code(args.fail_on)


def known(outcome: Outcome) -> str:
    """What was seen of real vLLM and is not news, a line each: known deviations that were met, and
    where its policy differs from the reference. Nothing where there is nothing."""
    lines = []
    if met := outcome.coverage.get("known"):
        lines.append(f"known deviations met, told in findings: {_counts(met)}")
    if policy := outcome.coverage.get("policy"):
        said = {KINDS[kind]: count for kind, count in policy.items()}
        lines.append(f"allowed; policy differs (steps): {_counts(said)}")
    return "".join(f"{line}\n" for line in lines)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def print_json(record: Mapping[str, Any]) -> None:
    """Print one object on standard output."""
    print(json.dumps(record, indent=2))


def summary(outcome: Outcome, setup: Setup) -> str:
    """The verdict in one line: what was covered, and why it is unknown."""
    covered = ", ".join(
        f"{name} {value}"
        for name, value in outcome.coverage.items()
        if not isinstance(value, Mapping | list)
    )
    faults = f" with {', '.join(setup.fault_names)}" if setup.faults else ""
    why = f": {outcome.reason}" if outcome.reason else ""
    return (
        f"{outcome.verdict.value}{why} - cluster {setup.cluster.name}{faults}: "
        f"{covered or 'nothing covered'} ({outcome.seconds:.1f} s)"
    )
