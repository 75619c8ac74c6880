"""`kvproof explore --machine live`: each order of the events of a cluster's jobs on real vLLM."""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvproof.cli.answer import answer
from kvproof.cli.finish import fixed
from kvproof.cli.graver import with_graver
from kvproof.cli.machines import Maker, undriven
from kvproof.cli.parser import Setup
from kvproof.cli.progress import progress
from kvproof.invariants.registry import CHECKS
from kvproof.live.trees import fingerprint, named
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.files.reading import shown
from kvproof.reports.output.search import Explored
from kvproof.strategies.explorer.by_replay import NOT_TWICE, explore_by_replay
from kvproof.strategies.explorer.running import Checkpoint, Limits, memory_mib
from kvproof.strategies.verdict import INTERRUPTED, Outcome, Verdict


def run(
    args: argparse.Namespace,
    setup: Setup,
    machine: Maker,
    limits: Limits,
    kept: Checkpoint | None,
) -> int:
    """Explore, and print the result."""
    for name in ("graph", "symmetry"):
        if getattr(args, name):
            raise UsageError(
                f"--{name} is for a search of the model, and this one is of real vLLM. Use "
                f"--machine model, or leave --{name} out."
            )
    files = fingerprint(named(None, args.cache)) if kept else ""
    outcome = with_graver(
        replayed(setup, machine, limits, kept, files),
        setup,
        args.fail_on,
        lambda graver: replayed(graver, machine, limits),
        CHECKS.values(),
    )
    known = {} if machine.met is None else {"known": dict(sorted(machine.met.items()))}
    outcome = machine.timed(measured(outcome, kept, known if outcome.coverage else {}))
    written = [] if kept is None else [fixed(kept.path, kept.check, whole=False)]
    return answer(
        args,
        setup,
        machine,
        outcome,
        Explored,
        before=_in_words(outcome, setup, machine),
        details=to_continue(outcome, kept),
        files=written,
    )


def replayed(
    setup: Setup,
    machine: Maker,
    limits: Limits,
    kept: Checkpoint | None = None,
    files: str = "",
) -> Outcome:
    """The outcome of the search of real vLLM; UNKNOWN if kvproof does not fit this vLLM.
    A file of the search is only good for a vLLM with the same `files`."""
    invariants = setup.invariants or tuple(CHECKS.values())
    with progress("exploring real vLLM: {} states, {} to expand") as show:
        try:
            return explore_by_replay(
                setup.cluster, machine.search, invariants, limits, show, kept, files
            )
        except AdapterDrift as drift:
            return undriven(drift)


def measured(outcome: Outcome, kept: Checkpoint | None, more: Mapping[str, Any]) -> Outcome:
    """The outcome with its speed and memory, if a search was made, and with what else is known."""
    states = outcome.coverage.get("states_distinct")
    if states is None:
        return outcome
    new = states - (kept.states if kept else 0)
    speed = round(new / max(outcome.seconds, 1e-3))
    cost = {"states_per_s": speed, "memory_mib": memory_mib()}
    return replace(outcome, coverage={**outcome.coverage, **cost, **more})


def to_continue(outcome: Outcome, kept: Checkpoint | None) -> list[str]:
    """How a search that was cut goes on."""
    if outcome.verdict is not Verdict.UNKNOWN or kept is None or kept.error:
        return []
    further = "" if outcome.reason == INTERRUPTED else " and a higher limit"
    return [
        f"To continue, run the same command with --resume{further} (checkpoint: "
        f"{shown(kept.path)})."
    ]


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
