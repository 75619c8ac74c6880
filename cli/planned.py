"""`kvproof replay` of a plan of an engine core, or of an engine with a connector."""

import argparse

from kvproof.cli.finish import finish
from kvproof.cli.machines import borrow, undriven
from kvproof.gate.difference.workload import Engine
from kvproof.gate.side.plans import driven
from kvproof.invariants.registry import gravest
from kvproof.model import interruption
from kvproof.model.errors import AdapterDrift, UsageError
from kvproof.model.files.reading import shown
from kvproof.model.finding import Finding
from kvproof.model.plans.engine import EnginePlan
from kvproof.model.traces.trace import PlanRun
from kvproof.reports.document import of_outcome, plain
from kvproof.reports.screen import say
from kvproof.strategies.verdict import INTERRUPTED, Outcome, Verdict


def run(args: argparse.Namespace, planned: PlanRun) -> int:
    """Carry a plan out again, and print the checks that it breaks."""
    if args.machine == "model":
        raise UsageError(
            f"{shown(args.trace)} is a plan, which real vLLM alone carries out. Use --machine live."
        )
    if isinstance(planned.plan, EnginePlan):
        return _of_core(args, planned, planned.plan)
    from kvproof.cli import connector

    return connector.replay(args, planned, planned.plan)


def _of_core(args: argparse.Namespace, planned: PlanRun, plan: EnginePlan) -> int:
    """Start the engine of a plan, and print the checks that it breaks."""
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
        for line in planned.lines:
            say(line)
        what = "; ".join(f"{each.invariant}, {each.sentence}" for each in found)
        say(f"{outcome.verdict.value}: {what or outcome.reason or 'no check is broken'}")

    return finish(
        args,
        outcome.exit_code(args.fail_on),
        lambda: {
            **of_outcome(outcome, machine="live", seed=args.seed, trace=args.trace),
            **({"findings": [plain(each) for each in found]} if found else {}),
        },
        printed,
    )
