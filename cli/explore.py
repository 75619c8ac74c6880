"""`kvproof explore`: exhaustive search of the model, or of real vLLM with the jobs of a cluster."""

import argparse
from pathlib import Path

from kvproof.cli import explore_live
from kvproof.cli import parser as options
from kvproof.cli.answer import answer
from kvproof.cli.explore_live import measured
from kvproof.cli.finish import fixed
from kvproof.cli.graver import with_graver
from kvproof.cli.machines import Maker, borrow, maker
from kvproof.cli.progress import progress
from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster
from kvproof.model.counting_abstraction.relation import not_projected
from kvproof.model.faults.fault import planted
from kvproof.reports import graph_file
from kvproof.reports.output.search import Explored
from kvproof.strategies.count_conformance import conformance_checks
from kvproof.strategies.explorer.explorer import explored
from kvproof.strategies.explorer.running import Limits
from kvproof.strategies.explorer.search_graph import SearchGraph
from kvproof.strategies.verdict import Outcome


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    options.add_scope(parser)
    options.add_machine(parser)
    options.add_vllm(parser)
    options.add_fail_on(parser)
    options.add_states_max(parser)
    options.add_memory_max(parser)
    options.add_traces(parser)
    options.add_explain(parser)
    parser.add_argument(
        "--graph",
        type=Path,
        metavar="FILE",
        help="write the graph to a new .graphml or .dot file",
    )


def run(args: argparse.Namespace) -> int:
    """Explore, and print the result."""
    setup = options.setup(args)
    borrow(args.vllm, args.cache, live=args.machine == "live")
    machine = maker(args.machine, setup.faults, cache=args.cache)
    limits = Limits(args.states_max, args.memory_max)
    if args.machine == "live":
        return explore_live.run(args, setup, machine, limits)
    return _model(args, setup, machine, limits)


def _model(args: argparse.Namespace, setup: options.Setup, machine: Maker, limits: Limits) -> int:
    if args.graph is not None:
        graph_file.check(args.graph)
    outcome, reached = exhausted(setup, limits)
    outcome = with_graver(
        outcome,
        setup,
        args.fail_on,
        lambda graver: exhausted(graver, limits)[0],
        [*CHECKS.values(), *conformance_checks()],
    )
    outcome = measured(outcome)
    details = _details(outcome)
    if setup.invariants is None and outcome.finding is None:
        details += not_compared(setup.cluster)
    files = []
    if args.graph is not None:
        files.append(fixed(args.graph, lambda: graph_file.write(args.graph, reached)))
    return answer(args, setup, machine, outcome, Explored, details=details, files=files)


def exhausted(setup: options.Setup, limits: Limits) -> tuple[Outcome, SearchGraph]:
    """The outcome of the search; UNKNOWN with the coverage so far if it was stopped."""
    with planted(*setup.faults), progress("exploring: {} states, {} to expand") as show:
        return explored(setup.cluster, setup.invariants, limits, show)


def not_compared(cluster: Cluster) -> list[str]:
    """The line about what of the steps is not compared with what is proved for all sizes."""
    left_out: dict[str, list[str]] = {}
    for what, why in dict.fromkeys(not_projected(cluster)):
        left_out.setdefault(what, []).append(why)
    said = ", ".join(f"{what} ({', '.join(why)})" for what, why in left_out.items())
    return [f"not compared with what is proved: {said}"] if said else []


MARGINS = "smallest margins, less than 0 would be a violation (after events)"


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
    lines = [f"events (new states): {fired or 'none'}"]
    margins = [
        f"{name} {margin['smallest']} ({margin['after_events']})"
        for name, margin in covered["margins"].items()
    ]
    if margins:
        lines.append(f"{MARGINS}: {', '.join(margins)}")
    goals = ", ".join(f"{goal} ({after})" for goal, after in covered["goals"].items())
    lines.append(f"coverage goals reached (after events): {goals or 'none'}")
    if covered["goals_not_reached"]:
        lines.append(f"coverage goals not reached: {', '.join(covered['goals_not_reached'])}")
    return lines
