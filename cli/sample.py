"""`kvproof sample`: random search with shrinking, outside pytest.

Real vLLM is driven beside the model. What this release is known for is counted, and is not news;
`kvproof replay` on a trace of reports/findings shows it.
"""

import argparse
from dataclasses import replace

from kvproof.cli import parser as options
from kvproof.cli.answer import answer
from kvproof.cli.machines import Maker, borrow, maker, undriven
from kvproof.cli.progress import progress
from kvproof.model.errors import AdapterDrift
from kvproof.strategies.verdict import Outcome

HELP = "drive the model or real vLLM through random episodes, and shrink what breaks"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    options.add_scope(parser)
    options.add_machine(parser)
    options.add_release(parser)
    options.add_sampling(parser)
    options.add_traces(parser)


def run(args: argparse.Namespace) -> int:
    """Sample, and print what was found."""
    setup = options.setup(args)
    borrow(args.release, args.cache, live=args.machine == "live")
    machine = maker(args.machine, setup.rules)
    return answer(args, setup, machine, sampled(setup, machine, args))


def sampled(setup: options.Setup, machine: Maker, args: argparse.Namespace) -> Outcome:
    """The outcome of the episodes."""
    from kvproof.strategies.stateful import sample

    with progress("sampling: {} of {} episodes") as show:
        try:
            outcome = sample(
                machine.search,
                setup.cluster,
                setup.invariants,
                seed=args.seed,
                examples=args.examples,
                steps=args.steps,
                progress=show,
            )
        except AdapterDrift as drift:
            return undriven(drift)
    if machine.explained is None:
        return outcome
    explained = dict(sorted(machine.explained.items()))
    return replace(outcome, coverage={**outcome.coverage, "explained": explained})
