"""`kvproof explore --machine live`: each order of the events of a cluster's jobs on real vLLM."""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from kvproof.cli.answer import answer
from kvproof.cli.graver import with_graver
from kvproof.cli.machines import Maker, undriven
from kvproof.cli.parser import Setup
from kvproof.cli.progress import progress
from kvproof.invariants.registry import CHECKS
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.reports.output.search import Explored
from kvproof.strategies.explorer.by_replay import NOT_TWICE, explore_by_replay
from kvproof.strategies.explorer.running import Limits, memory_mib
from kvproof.strategies.verdict import Outcome, Verdict


def run(args: argparse.Namespace, setup: Setup, machine: Maker, limits: Limits) -> int:
    """Explore, and print the result."""
    if args.graph:
        raise UsageError(
            "--graph is for a search of the model, and this one is of real vLLM. Use "
            "--machine model, or leave --graph out."
        )
    outcome = with_graver(
        replayed(setup, machine, limits),
        setup,
        args.fail_on,
        lambda graver: replayed(graver, machine, limits),
        CHECKS.values(),
    )
    known = {} if machine.met is None else {"known": dict(sorted(machine.met.items()))}
    outcome = machine.timed(measured(outcome, known if outcome.coverage else {}))
    return answer(
        args,
        setup,
        machine,
        outcome,
        Explored,
        before=_in_words(outcome, setup, machine),
    )


def replayed(setup: Setup, machine: Maker, limits: Limits) -> Outcome:
    """The outcome of the search of real vLLM; UNKNOWN if kvproof does not fit this vLLM."""
    invariants = setup.invariants or tuple(CHECKS.values())
    with progress("exploring real vLLM: {} states, {} to expand") as show:
        try:
            return explore_by_replay(setup.cluster, machine.search, invariants, limits, show)
        except AdapterDrift as drift:
            return undriven(drift)


def measured(outcome: Outcome, more: Mapping[str, Any] = MappingProxyType({})) -> Outcome:
    """The outcome with its speed and memory, if a search was made, and with what else is known."""
    states = outcome.coverage.get("states_distinct")
    if states is None:
        return outcome
    speed = round(states / max(outcome.seconds, 1e-3))
    cost = {"states_per_s": speed, "memory_mib": memory_mib()}
    return replace(outcome, coverage={**outcome.coverage, **cost, **more})


def _in_words(outcome: Outcome, setup: Setup, machine: Maker) -> list[str]:
    """What a search of real vLLM covered, in words. Where the machine did not repeat itself, the
    states say nothing."""
    covered = outcome.coverage
    if outcome.finding is not None or not covered or outcome.reason == NOT_TWICE:
        return []
    orders = (
        "Each order of the events"
        if outcome.verdict is Verdict.EXHAUSTED
        else f"Each order of up to {max(covered['depth'] - 1, 0)} events"
    )
    ends = any(i.kind == "eventually" for i in setup.invariants or CHECKS.values())
    what = "in any of them, nor in a fair run from each" if ends else "in any of them"
    lines = [
        f"{orders} of the jobs of cluster {setup.cluster.name} was taken on real vLLM "
        f"{machine.vllm}, up to states that look alike. Nothing new was found {what}."
    ]
    if covered.get("known"):
        lines.append(f"Known findings of this vLLM were met: {', '.join(covered['known'])}.")
    return lines
