"""What a step leads to that the spec does not allow: the first invariant that breaks.

A guard says what a step must not do, and an invariant what a user would feel of it. Where a guard
is not met and every invariant still holds, the run is driven on, fairly and for a few rounds only,
to see which one will break. It may be none, and then nothing is said.
"""

from collections.abc import Sequence

from kvproof.invariants.registry import CHECKS, INVARIANTS
from kvproof.model.errors import AdapterDrift, NotAllowed
from kvproof.model.events import Event
from kvproof.model.finding import Finding
from kvproof.model.machine import Machine
from kvproof.strategies.conformance.replay import offered
from kvproof.strategies.drain import NOTHING_CHANGES, over, take_round, unfinished
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.verdict import Consequence

ROUNDS_MAX = 3
"""Fair rounds that are driven on."""


def leads_to(machine: Machine, events: Sequence[Event]) -> Consequence | None:
    """What the last of these events leads to, on a fresh machine. None where no invariant breaks
    soon enough, or where the machine does not take the same events again."""
    run = Run(machine, CHECKS.values())
    try:
        broken = _repeat(run, events)
        invariant = next((f for f in broken if f.invariant in INVARIANTS), None)
        return _driven_on(run) if invariant is None else Consequence(0, invariant)
    except (AdapterDrift, NotAllowed):
        return None


def _repeat(run: Run, events: Sequence[Event]) -> tuple[Finding, ...]:
    """Take these events again. Returns what breaks at the last one, the gravest first."""
    broken: tuple[Finding, ...] = ()
    for event in events:
        broken = ()
        try:
            run.take_one(offered(run.machine, event))
        except Violated as violated:
            broken = violated.finding, *violated.others
    return broken


def _driven_on(run: Run) -> Consequence | None:
    """The first invariant that breaks in the next fair rounds. A round that changes nothing shows
    that some request will never finish."""
    run.invariants = tuple(INVARIANTS.values())
    begin = len(run.steps)
    stuck = next(i.id for i in run.invariants if i.kind == "eventually")
    try:
        for _ in range(ROUNDS_MAX):
            if over(run):
                return None
            if not take_round(run):
                run.fail(unfinished(run, stuck, NOTHING_CHANGES))
    except Violated as violated:
        return Consequence(len(run.steps) - begin, violated.finding)
    return None
