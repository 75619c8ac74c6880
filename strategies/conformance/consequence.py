"""The consequence of a step that the spec does not allow: the first invariant that breaks after it.

A guard states what a step must not do; an invariant states what a user would observe. If a guard is
not met and every invariant still holds, the run continues for a few fair rounds to find the first
invariant that breaks. If none breaks, there is no consequence to report.
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
"""The number of fair rounds after the event that did not meet the guard."""


def leads_to(machine: Machine, events: Sequence[Event]) -> Consequence | None:
    """The consequence of the last of these events, on a fresh machine. None if no invariant breaks
    within `ROUNDS_MAX` rounds, or if the machine does not take the same events again."""
    run = Run(machine, CHECKS.values())
    try:
        broken = _repeat(run, events)
        invariant = next((f for f in broken if f.invariant in INVARIANTS), None)
        return _driven_on(run) if invariant is None else Consequence(0, invariant)
    except (AdapterDrift, NotAllowed):
        return None


def _repeat(run: Run, events: Sequence[Event]) -> tuple[Finding, ...]:
    """Take these events again. Returns the findings at the last one, the most severe first."""
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
