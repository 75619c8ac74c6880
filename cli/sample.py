"""`kvproof sample`: random search with shrinking, outside pytest.

Each step of real vLLM is checked against the guards of the spec and the invariants. Known
findings are counted and not reported as new ones; `kvproof replay` on a trace of findings/ shows
one.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from kvproof.cli import parser as options
from kvproof.cli.answer import NAMES_SHOWN, answer, judged_lines, traced, with_graver
from kvproof.cli.machines import Maker, borrow, maker, undriven
from kvproof.cli.on_releases import replayed_alone
from kvproof.cli.profile import without_trace
from kvproof.invariants.registry import CHECKS
from kvproof.model.counted import counted, was
from kvproof.model.errors import AdapterDrift
from kvproof.model.faults.fault import planted
from kvproof.model.traces.trace import Trace, write_in
from kvproof.reports import live_line
from kvproof.reports.live_line import progress
from kvproof.reports.screen import say
from kvproof.strategies.count_conformance import conformance_checks
from kvproof.strategies.run import Violated
from kvproof.strategies.verdict import Outcome, Verdict, earned

NEEDS_EARLIER = (
    "Alone, in a fresh process, this run does not break the check: it needs what earlier episodes "
    "left in vLLM."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `kvproof sample` to its parser."""
    options.add_scope(
        parser,
        "the preset of the fault, else a few episodes each of many presets and random clusters",
    )
    options.add_machine(parser)
    options.add_vllm(parser)
    options.add_fail_on(parser)
    parser.add_argument(
        "--examples",
        type=options.at_least_one,
        metavar="N",
        help="number of episodes (default: 200, or 1,000 of many clusters)",
    )
    parser.add_argument(
        "--steps",
        type=options.at_least_one,
        default=40,
        metavar="N",
        help="number of choices in an episode (default: %(default)s)",
    )
    options.add_traces(parser)


def run(args: argparse.Namespace) -> int:
    """Sample, and print the result."""
    setup = options.setup(args)
    setup = setup._replace(wide=args.config is None and not setup.faults)
    borrow(args.vllm, args.cache, live=args.machine == "live")
    machine = maker(args.machine, setup.faults)
    outcome = with_graver(
        sampled(setup, machine, args),
        setup,
        args.fail_on,
        lambda graver: sampled(graver, machine, args),
        [*CHECKS.values(), *(conformance_checks() if machine.name == "model" else ())],
    )
    before = in_words(outcome, setup, machine)
    if machine.name == "live":
        before += _alone(args, traced(setup, machine, outcome, args.seed))
    return answer(args, setup, machine, outcome, before=before)


def _alone(args: argparse.Namespace, trace: Trace | None) -> list[str]:
    """Replay the run of a finding in a fresh process, and say where it does not break the check
    there: what an episode leaves in vLLM's modules, the next ones find there."""
    if trace is None:
        return []
    live_line.show("replaying the finding in a fresh process ...")
    with tempfile.TemporaryDirectory(prefix="kvproof-alone-") as folder:
        path = write_in(Path(folder), "alone", trace)
        found = replayed_alone(path, args.vllm, args.cache)
    return [NEEDS_EARLIER] if found.verdict == Verdict.SAMPLED.value else []


def in_words(outcome: Outcome, setup: options.Setup, machine: Maker) -> list[str]:
    """Say in lines what the episodes show: what is new, what of it was known, and what this says
    about other episodes."""
    covered = outcome.coverage
    known = covered.get("known") or {}
    lines = []
    if outcome.finding is None and covered.get("examples"):
        what = "Nothing new" if machine.met is not None else "No violation"
        faults = f" with {', '.join(setup.fault_names)}" if setup.faults else ""
        of = f"real vLLM {machine.vllm}" if machine.name == "live" else f"the model{faults}"
        lines.append(
            f"{what} in {counted(covered['examples'], 'episode')} "
            f"({counted(covered['steps'], 'step')}) of {of}, {_clusters(covered, setup)}."
        )
        found = "something new" if known else "one"
        lines.append(_of_others(covered["unseen_at_most"], found, setup.wide))
    if outcome.finding is None:
        lines += judged_lines(covered.get("judged") or {})
    if outcome.finding is not None and (like := machine.alike.get(outcome.finding.invariant)):
        lines.append(
            f"New: it looks like {like} (kvproof explain {like} says what that is), but the check "
            "is broken without the cause of that, too."
        )
    if known:
        lines.append(
            f"{counted(len(known), 'known finding')} of this vLLM {was(len(known))} met, with "
            f"counts: {', '.join(f'{name} {count}' for name, count in known.items())}. "
            "(kvproof explain NAME says what one is.)"
        )
    if machine.met is not None and (unused := without_trace()):
        lines.append(
            "Known findings that are not used, because findings/NAME/trace.jsonl is not there: "
            f"{', '.join(unused)}."
        )
    return lines


def _clusters(covered: Mapping[str, Any], setup: options.Setup) -> str:
    """Name the clusters of the episodes, as far as a few lines have room."""
    if not setup.wide:
        return f"cluster {setup.cluster.name}"
    names = list(covered["clusters"])
    shown = ", ".join(names[:NAMES_SHOWN])
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    undriven = len(covered.get("clusters_undriven") or ())
    others = f"; {undriven} more need what came after vLLM 0.32.0" if undriven else ""
    return f"{counted(len(names), 'cluster')}: {shown}{more} (--json names all){others}"


def _of_others(bound: float, what: str, wide: bool) -> str:
    """Say the rule of three in words: `bound` is the upper end of a 95 % confidence interval.
    Episodes of one cluster are independent; of `wide` ones, some have their cluster in common."""
    if bound >= 1:
        return "So few episodes say nothing about others."
    share = f"With 95 % confidence, at most {100 * bound:.2g} % of such episodes show {what}."
    if not wide:
        return share
    return f"{share} This takes them for independent, which they are only nearly."


def _show_first(violated: Violated) -> None:
    """Show a violation whose run is being shrunk."""
    finding, steps = violated.finding, counted(len(violated.events), "event")
    line = f"{finding.invariant}: {finding.sentence} (cluster {violated.cluster.name}, {steps})"
    say(line, file=sys.stderr)
    say(live_line.SHORTER, file=sys.stderr)


def sampled(setup: options.Setup, machine: Maker, args: argparse.Namespace) -> Outcome:
    """Run the episodes, and return their outcome."""
    from kvproof.strategies.sampling.stateful import sample
    from kvproof.strategies.sampling.wide import random_clusters, sample_many

    seen: dict[str, dict[str, int]] = {}

    def found(violated: Violated) -> None:
        note()
        if live_line.wanted():
            _show_first(violated)

    def note() -> None:
        if machine.met is not None and not seen:
            seen["known"] = dict(sorted(machine.met.items()))

    with planted(*setup.faults), progress("sampling: {} of {} episodes") as show:
        try:
            search = (
                partial(sample_many, random_clusters(args.seed, live=machine.name == "live"))
                if setup.wide
                else partial(sample, setup.cluster)
            )
            outcome = search(
                machine.search,
                setup.invariants,
                seed=args.seed,
                steps=args.steps,
                progress=show,
                failed=found,
                **({} if args.examples is None else {"examples": args.examples}),
            )
        except AdapterDrift as drift:
            return undriven(drift)
    note()
    return earned(replace(outcome, coverage={**outcome.coverage, **seen}))
