"""`kvproof explore`: exhaustive search."""

import argparse
import time

from kvproof.cli import parser as options
from kvproof.cli.answer import answer
from kvproof.cli.machines import maker
from kvproof.cli.progress import progress
from kvproof.strategies.exhaustive import explore
from kvproof.strategies.verdict import Outcome, Verdict

HELP = "visit every reachable state of a cluster, and check all invariants in each"


INTERRUPTED = "interrupted"
"""Why a search is UNKNOWN that was stopped by the user; `sample` says the same."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    options.add_scope(parser)
    options.add_states_max(parser)
    options.add_traces(parser)


def run(args: argparse.Namespace) -> int:
    """Explore, and print what was found."""
    setup = options.setup(args)
    outcome = exhausted(setup, args.states_max)
    return answer(args, setup, maker("model", setup.rules), outcome)


def exhausted(setup: options.Setup, states_max: int) -> Outcome:
    """The outcome of the search; UNKNOWN with what was seen so far where it is interrupted."""
    seen = 0
    start = time.perf_counter()
    try:
        with progress("exploring: {} states, {} to expand") as show:

            def note(states: int, waiting: int) -> None:
                nonlocal seen
                seen = states
                show(states, waiting)

            return explore(setup.cluster, setup.rules, setup.invariants, states_max, note)
    except KeyboardInterrupt:
        seconds = time.perf_counter() - start
        covered = {"states_distinct": seen}
        return Outcome(Verdict.UNKNOWN, covered, reason=INTERRUPTED, seconds=seconds)
