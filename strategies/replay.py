"""Replay: drive a machine through the events of a trace, and say whether it does the same again.

`record` makes the trace of a violation in the first place; it is a replay that notes the states.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvproof.invariants.invariant import Invariant, broken
from kvproof.invariants.registry import INVARIANTS, invariant_named
from kvproof.model.cluster import initial
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Event, describe, stimulus
from kvproof.model.machine import Machine
from kvproof.model.rules import SPEC
from kvproof.model.step import Step
from kvproof.reports.state_diff import Change, Flat, diff, flat
from kvproof.reports.trace import Trace
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.tie import TIE, ties
from kvproof.strategies.verdict import Outcome, Verdict

ABSENT = "(absent)"
"""How a difference shows a field that is not there."""


class Difference(NamedTuple):
    """Where a replay first went another way: the step (from 1), and one field with both values."""

    step: int
    event: str
    field: str
    recorded: Any
    replayed: Any

    @property
    def sentence(self) -> str:
        """The difference in words."""
        return (
            f"step {self.step}, {self.event}: {self.field} is {self.replayed!r} "
            f"where the trace has {self.recorded!r}"
        )


@dataclass(frozen=True)
class Replayed:
    """What a replay found.

    Where `differs` is None, `outcome` is VIOLATED (the same finding again) or SAMPLED (a trace
    without a finding, all equal). Where it is set, the trace was not reproduced, and that is an
    answer of its own: it says nothing about the invariants, and its exit code is 1.
    """

    outcome: Outcome
    differs: Difference | None = None

    @property
    def exit_code(self) -> int:
        """0 equal, 1 reproduced or different, 3 where the machine could not be driven."""
        return 1 if self.differs else self.outcome.verdict.exit_code


def offered(machine: Machine, event: Event) -> Event:
    """The event as this machine takes it: the model checks recorded choices, live vLLM chooses."""
    return event if machine.name == "model" else stimulus(event)


def replay(machine: Machine, trace: Trace) -> Replayed:
    """Feed the events of a trace to a fresh machine; stop at the first difference.

    Compared are the event as it was resolved, every field of the state after it (where the trace
    has states), and the finding. Raises UsageError where the trace names an engine, request or
    invariant that does not exist.
    """
    taken: list[Event] = []
    differs: Difference | None = None
    for difference, event in _steps(machine, trace):
        taken.append(event)
        differs = difference
    finding = None if differs else trace.finding
    verdict = Verdict.SAMPLED if finding is None else Verdict.VIOLATED
    coverage = {"examples": 1, "steps": len(taken)}
    return Replayed(Outcome(verdict, coverage, tuple(taken), finding), differs)


def record(machine: Machine, events: tuple[Event, ...]) -> tuple[Change, ...] | None:
    """What each event changes, on a fresh machine. None where it does not take the same events."""
    last: Flat = flat(initial(machine.cluster))
    changes = []
    for event in events:
        try:
            step = machine.take(offered(machine, event))
        except NotAllowed:
            return None
        if step.event != event:
            return None
        after = flat(step.after)
        changes.append(diff(last, after))
        last = after
    return tuple(changes)


def _steps(machine: Machine, trace: Trace) -> Iterator[tuple[Difference | None, Event]]:
    """Take the events one by one, up to and with the first that differs."""
    states = trace.states()
    for index, recorded in enumerate(trace.events):
        at = (index + 1, describe(recorded))
        try:
            step = machine.take(offered(machine, recorded))
        except NotAllowed as error:
            yield Difference(*at, "event", "taken", f"not allowed: {error}"), recorded
            return
        difference = (
            _event_differs(at, recorded, step)
            or (_state_differs(at, states[index + 1], flat(step.after)) if states else None)
            or _finding_differs(at, machine, step, trace, index + 1 == len(trace.events))
        )
        yield difference, step.event
        if difference:
            return


def _event_differs(at: tuple[int, str], recorded: Event, step: Step) -> Difference | None:
    if step.event == recorded:
        return None
    return Difference(*at, "event", describe(recorded), describe(step.event))


def _state_differs(at: tuple[int, str], expected: Flat, found: Flat) -> Difference | None:
    for pointer in sorted({*expected, *found}):
        was, now = expected.get(pointer, ABSENT), found.get(pointer, ABSENT)
        if was != now:
            return Difference(*at, pointer, was, now)
    return None


def _finding_differs(
    at: tuple[int, str], machine: Machine, step: Step, trace: Trace, last: bool
) -> Difference | None:
    """With a finding in the trace, its invariant breaks at the last event as recorded; with none,
    no invariant breaks at all. An `eventually` invariant is judged by driving the machine on."""
    if trace.finding is None:
        for finding in broken(machine.cluster, step, INVARIANTS.values()):
            return Difference(*at, "finding", "none", finding.sentence)
        return None
    if not last:
        return None
    asked = _asked(machine, trace.finding.invariant)
    if asked[0].kind == "eventually":
        if _stuck(machine, trace.finding.invariant):
            return None
        return Difference(*at, "finding", trace.finding.sentence, "all requests finish from here")
    findings = list(broken(machine.cluster, step, asked))
    if trace.finding in findings:
        return None
    now = findings[0].sentence if findings else "none"
    return Difference(*at, "finding", trace.finding.sentence, now)


def _asked(machine: Machine, name: str) -> tuple[Invariant, ...]:
    rules = getattr(machine, "rules", SPEC)
    return ties(rules) if name == TIE else (invariant_named(name),)


def _stuck(machine: Machine, invariant: str) -> bool:
    """Whether fair scheduling from here on does not end all requests. Takes more events."""
    try:
        drain(Run(machine, ()), invariant)
    except Violated:
        return True
    return False
