"""The end of a search: write the trace, print the result, return the exit code."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kvproof.cli.graver import tolerated_lines
from kvproof.cli.machines import Maker, running
from kvproof.cli.parser import Setup
from kvproof.invariants.registry import CHECKS
from kvproof.model.traces.trace import Trace, fresh_path, write
from kvproof.reports.screen import say
from kvproof.reports.terminal import show
from kvproof.reports.verdict_json import verdict_object
from kvproof.strategies.conformance.consequence import leads_to
from kvproof.strategies.conformance.policy import KINDS
from kvproof.strategies.conformance.replay import record
from kvproof.strategies.verdict import Outcome, Verdict


class Kept(NamedTuple):
    """A trace and its file."""

    path: Path
    trace: Trace


def keep(setup: Setup, maker: Maker, outcome: Outcome, seed: int, folder: Path) -> Kept | None:
    """Write the trace of a violation to a new file. None if there are no events (a refuted
    obligation has numbers instead)."""
    if outcome.verdict is not Verdict.VIOLATED or not outcome.events:
        return None
    cluster = outcome.cluster or setup.cluster
    with running(cluster, maker.make) as machine:
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
    """The outcome with its consequence if a guard fails. Known deviations on the way are not
    consequences."""
    known = CHECKS.get(outcome.finding.invariant) if outcome.finding else None
    if known is None or known.kind != "guard":
        return outcome
    with running(outcome.cluster or setup.cluster, maker.search) as machine:
        return dataclasses.replace(outcome, leads_to=leads_to(machine, outcome.events))


def answer(args: argparse.Namespace, setup: Setup, maker: Maker, outcome: Outcome) -> int:
    """Print an outcome, and its trace if it has one. Returns the exit code."""
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
        say()
    for line in (summary(outcome, setup), *tolerated_lines(outcome, args.fail_on), *known(outcome)):
        say(line)
    return outcome.exit_code(args.fail_on)


def known(outcome: Outcome) -> list[str]:
    """Known facts about real vLLM, one line each: the known deviations met, and where vLLM's policy
    differs from the reference."""
    lines = []
    if met := outcome.coverage.get("known"):
        lines.append(f"known deviations met (see findings/): {_counts(met)}")
    if policy := outcome.coverage.get("policy"):
        named = {KINDS[kind]: count for kind, count in policy.items()}
        lines.append(
            f"permitted by the spec, differs from the reference's policy (steps): {_counts(named)}"
        )
    return lines


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def print_json(record: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output."""
    print(json.dumps(record, indent=2))


def summary(outcome: Outcome, setup: Setup) -> str:
    """The verdict in one line, with the coverage and, for UNKNOWN, the reason."""
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
