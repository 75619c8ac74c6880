"""`kvproof explore`: exhaustive search of the model, or of real vLLM with the jobs of a cluster."""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvproof.cli import parser as options
from kvproof.cli.answer import answer, judged_lines, with_graver
from kvproof.cli.machines import Maker, borrow, maker, undriven
from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster
from kvproof.model.counting_abstraction.relation import not_projected
from kvproof.model.errors import AdapterDrift
from kvproof.model.faults.fault import planted
from kvproof.reports.live_line import progress
from kvproof.strategies.count_conformance import conformance_checks
from kvproof.strategies.explorer.by_replay import explore_by_replay
from kvproof.strategies.explorer.explorer import explore
from kvproof.strategies.explorer.running import Limits, memory_mib
from kvproof.strategies.verdict import NOT_TWICE, Outcome, Verdict


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `kvproof explore` to its parser."""
    options.add_scope(parser)
    options.add_machine(parser)
    options.add_vllm(parser)
    options.add_fail_on(parser)
    parser.add_argument(
        "--states-max",
        type=options.at_least_one,
        default=1_000_000,
        metavar="N",
        help="maximum number of distinct states (default: %(default)s)",
    )
    parser.add_argument(
        "--memory-max",
        type=options.at_least_one,
        metavar="MIB",
        help="maximum memory, in MiB (default: no limit)",
    )
    options.add_traces(parser)


def run(args: argparse.Namespace) -> int:
    """Explore, and print the result."""
    setup = options.setup(args)
    borrow(args.vllm, args.cache, live=args.machine == "live")
    machine = maker(args.machine, setup.faults)
    limits = Limits(args.states_max, args.memory_max)
    if args.machine == "live":
        return _live(args, setup, machine, limits)
    return _model(args, setup, machine, limits)


def _model(args: argparse.Namespace, setup: options.Setup, machine: Maker, limits: Limits) -> int:
    outcome = with_graver(
        _exhausted(setup, limits),
        setup,
        args.fail_on,
        lambda graver: _exhausted(graver, limits),
        [*CHECKS.values(), *conformance_checks()],
    )
    details = _details(outcome)
    if setup.invariants is None and outcome.finding is None:
        details += _not_compared(setup.cluster)
    return answer(args, setup, machine, _measured(outcome), details=details)


def _exhausted(setup: options.Setup, limits: Limits) -> Outcome:
    """Search the model. The outcome is UNKNOWN with the coverage so far if the search was
    stopped."""
    with planted(*setup.faults), progress("exploring: {} states, {} to expand") as show:
        return explore(
            setup.cluster, setup.invariants, limits.states, show, memory_mib=limits.memory_mib
        )


def _measured(outcome: Outcome, more: Mapping[str, Any] | None = None) -> Outcome:
    """Add the speed and the memory of a search to its outcome, if a search was made, and what else
    is known."""
    states = outcome.coverage.get("states_distinct")
    if states is None:
        return outcome
    speed = round(states / max(outcome.seconds, 1e-3))
    cost = {"states_per_s": speed, "memory_mib": memory_mib()}
    return replace(outcome, coverage={**outcome.coverage, **cost, **(more or {})})


def _not_compared(cluster: Cluster) -> list[str]:
    """Say what of the steps is not compared with what is proved for all sizes, in a line."""
    left_out: dict[str, list[str]] = {}
    for what, why in dict.fromkeys(not_projected(cluster)):
        left_out.setdefault(what, []).append(why)
    said = ", ".join(f"{what} ({', '.join(why)})" for what, why in left_out.items())
    return [f"not compared with what is proved: {said}"] if said else []


def _details(outcome: Outcome) -> list[str]:
    """The lines about a search after its verdict. Beside a violation, whose trace is printed, what
    else was reached is in the output of `--json` alone."""
    covered = outcome.coverage
    if outcome.finding is not None:
        return []
    fired = ", ".join(
        f"{kind} {count} ({covered['events_new'].get(kind, 0)})"
        for kind, count in covered["events"].items()
    )
    rejected = covered["rejected"]
    return [
        f"events (new states): {fired or 'none'}",
        *[f"rejected, as they fit no pool: {', '.join(rejected)}"] * bool(rejected),
        *judged_lines(covered["judged"]),
    ]


# Real vLLM.


def _live(args: argparse.Namespace, setup: options.Setup, machine: Maker, limits: Limits) -> int:
    outcome = with_graver(
        _replayed(setup, machine, limits),
        setup,
        args.fail_on,
        lambda graver: _replayed(graver, machine, limits),
        CHECKS.values(),
    )
    known = {} if machine.met is None else {"known": dict(sorted(machine.met.items()))}
    outcome = _measured(outcome, known if outcome.coverage else {})
    before = _in_words(outcome, setup, machine)
    return answer(args, setup, machine, outcome, before=before)


def _replayed(setup: options.Setup, machine: Maker, limits: Limits) -> Outcome:
    """Take each order of the events of a cluster's jobs on real vLLM. The outcome is UNKNOWN if
    kvproof does not fit this vLLM."""
    invariants = setup.invariants or tuple(CHECKS.values())
    with progress("exploring real vLLM: {} states, {} to expand") as show:
        try:
            return explore_by_replay(setup.cluster, machine.search, invariants, limits, show)
        except AdapterDrift as drift:
            return undriven(drift)


def _in_words(outcome: Outcome, setup: options.Setup, machine: Maker) -> list[str]:
    """Say what a search of real vLLM covered. Where the machine did not repeat itself, the states
    say nothing."""
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
    lines += judged_lines(covered["judged"])
    if covered.get("known"):
        lines.append(f"Known findings of this vLLM were met: {', '.join(covered['known'])}.")
    return lines
