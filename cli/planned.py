"""`kvproof replay` of the plan of an engine core, which the gate wrote."""

import argparse

from kvproof.cli.finish import finish
from kvproof.cli.machines import borrow, undriven
from kvproof.gate.difference.workload import Engine
from kvproof.gate.side.plans import driven
from kvproof.invariants.registry import gravest
from kvproof.model import interruption
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.files.decoding import KINDS, decoded_json, kind_of
from kvproof.model.files.reading import read_text, shown
from kvproof.model.finding import Finding
from kvproof.model.plans.engine import EnginePlan, lines
from kvproof.reports.document import of_outcome
from kvproof.reports.screen import say
from kvproof.strategies.verdict import INTERRUPTED, Outcome, Verdict

USE = "a file that kvproof gate wrote"


def run(args: argparse.Namespace) -> int:
    """Start the engine of a plan, and print the checks that it breaks."""
    text, what = read_text(args.trace, "plan"), f"The file {shown(args.trace)}"
    kind = kind_of(text)
    if kind == KINDS["engine"]:
        raise UsageError(
            f"{what} is the plan of a connector. Use kvproof connector NAME --replay "
            f"{shown(args.trace)}, where NAME is the connector of the finding."
        )
    if kind and kind != KINDS["layers"]:
        raise UsageError(f"{what} is {kind}. Use a trace, or the plan of an engine core.")
    plan = decoded_json(text, EnginePlan, what, USE)
    borrow(args.vllm, args.cache, live=True)
    outcome, found = Outcome(Verdict.UNKNOWN, reason=INTERRUPTED), list[Finding]()
    with interruption.stoppable():
        try:
            result = driven(Engine(shown(args.trace), plan))
            found = gravest(each.finding for each in result.breaks)
            outcome = Outcome(Verdict.SAMPLED)
            if found:
                outcome = Outcome(Verdict.VIOLATED, finding=found[0])
            elif result.without_loops:
                outcome = undriven(AdapterDrift(result.without_loops))
        except AdapterDrift as drift:
            outcome = undriven(drift)

    def printed() -> None:
        for line in lines(plan):
            say(line)
        what = "; ".join(f"{each.invariant}, {each.sentence}" for each in found)
        say(f"{outcome.verdict.value}: {what or outcome.reason or 'no check is broken'}")

    return finish(
        args,
        outcome.exit_code(args.fail_on),
        lambda: of_outcome(outcome, machine="live", seed=args.seed, trace=args.trace),
        printed,
    )
