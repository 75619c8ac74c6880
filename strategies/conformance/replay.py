"""Replay: drive a machine through the events of a trace, and say whether it does the same again.

`record` makes the trace of a violation in the first place; it is a replay that notes the states.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from kvproof.invariants.check import Check, broken
from kvproof.invariants.registry import CHECKS, check_named
from kvproof.model.because import About
from kvproof.model.errors import NotAllowed, UsageError
from kvproof.model.events import (
    BLOCKS,
    Event,
    Schedule,
    as_recorded,
    bare,
    describe,
    matches_recorded,
    stimulus,
)
from kvproof.model.finding import Finding
from kvproof.model.machine import Machine
from kvproof.model.severity import FAIL_ON, Severity
from kvproof.model.state import initial
from kvproof.model.step import Step
from kvproof.model.traces.state_diff import Change, Flat, diff, flat
from kvproof.model.traces.trace import Trace
from kvproof.strategies.count_conformance import CONFORMANCE, conformance_checks
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.verdict import Outcome, Verdict

ABSENT = "(absent)"
"""The value shown in a difference for a field that does not exist."""


class Difference(Struct, frozen=True):
    """The first difference between a replay and its trace: the step (from 1), and one field with
    both values."""

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


class Parting(Struct, frozen=True):
    """Where a machine stops following a trace: the event (its number from 1), and why the machine
    does not take it, or what it does instead because it chooses by itself (`does`)."""

    step: int
    event: str
    why: str = ""
    does: str = ""


@dataclass(frozen=True)
class Replay:
    """What a replay found.

    `outcome` is VIOLATED if the replay shows the finding of the trace again, in the same words or
    after a different run. It is SAMPLED if the machine follows the trace to its end, and the
    finding does not occur or the trace has none. It is UNKNOWN if the machine does not follow: its
    run is another one then, which says nothing about the finding of this one.

    `parted` is the event that the machine does not take as it was recorded, or None. A machine that
    chooses by itself also follows where it does otherwise at the last event alone: up to there the
    runs are equal, and this is its answer (`outcome` is SAMPLED). The choice of blocks is no
    difference here. `differs` is the first difference between the run and the trace, also in a
    state, or None. `compared` says that the trace has no finding: then the replay looks for a
    difference.
    """

    outcome: Outcome
    differs: Difference | None = None
    compared: bool = False
    parted: Parting | None = None

    def exit_code(self, fail_on: Severity = FAIL_ON) -> int:
        """1 if the finding occurred again and is not less severe than `fail_on`, or if the trace
        has no finding and the run differs; 3 if the machine could not follow the trace; otherwise
        0."""
        if self.compared and self.differs:
            return 1
        return self.outcome.exit_code(fail_on)


def offered(machine: Machine, event: Event) -> Event:
    """The event as this machine takes it: the model checks recorded choices, live vLLM chooses."""
    return event if machine.name == "model" else stimulus(event)


def replay(machine: Machine, trace: Trace) -> Replay:
    """Feed the events of a trace to a fresh machine.

    Until the first difference, the replay compares the resolved event, every field of the state
    after it (if the trace has states), and the finding. After the first difference the machine
    takes the remaining events that are possible, and the replay looks for the finding after each
    one. Raises UsageError where the trace names an engine, request or invariant that does not
    exist.
    """
    following = _Following(machine, trace)
    for index, event in enumerate(trace.events):
        following.take(event, index)
    return following.end()


class _Following:
    """A machine that follows a trace."""

    def __init__(self, machine: Machine, trace: Trace) -> None:
        self.machine, self.trace = machine, trace
        self.states = trace.states()
        next(self.states, None)  # the state before the first event
        self.taken: list[Event] = []
        self.differs: Difference | None = None
        self.shown: Finding | None = None
        self.parted: Parting | None = None
        self.missed = False  # some event was not possible

    def take(self, recorded: Event, index: int) -> None:
        """Take one event, or skip it if it is not possible here."""
        at = (index + 1, describe(recorded))
        last, state = index + 1 == len(self.trace.events), next(self.states, None)
        if self.shown:
            return
        engines = self.machine.state.engines
        name, dead = next(((e.name, e.dead) for e in engines if e.dead is not None), ("", None))
        if dead is not None:
            self._part(Parting(*at, f"{name} died before: {dead.words}"))
            return
        step = self._step(recorded, at)
        if step is None:
            return
        self.taken.append(step.event)
        if self.differs is None:
            self.differs = _event_differs(step, recorded, at)
        if self.differs is None and state is not None:
            self.differs = _state_differs(at, state, flat(step.after))
        self._judge(step, at, last)

    def _step(self, recorded: Event, at: tuple[int, str]) -> Step | None:
        """Take an event, and return its step; None where it is not possible. If the model may not
        make the recorded choices, which is a difference, it makes its own."""
        own = stimulus(recorded)
        why = ""
        for event in (recorded, bare(recorded), own) if self.machine.name == "model" else (own,):
            try:
                step = self.machine.take(event)
            except (NotAllowed, UsageError) as error:
                if self.differs is None and isinstance(error, UsageError):
                    raise
                why = why if event is own and why else str(error)
                how = f"not allowed: {error}"
                self.differs = self.differs or Difference(*at, "event", "taken", how)
                continue
            if bare(step.event) != bare(recorded):
                self._part(Parting(*at, why, describe(step.event)))
            return step
        self._part(Parting(*at, why))
        self.missed = True
        return None

    def _part(self, parted: Parting) -> None:
        self.parted = self.parted or parted

    @property
    def _answered(self) -> bool:
        """Whether the machine parted at the last event alone, because it chooses by itself."""
        parted = self.parted
        return (
            parted is not None
            and not parted.why
            and bool(parted.does)
            and parted.step == len(self.trace.events)
        )

    def _judge(self, step: Step, at: tuple[int, str], last: bool) -> None:
        """Look for the finding of the trace. If the trace has none, any check that does not hold is
        a difference."""
        wanted = self.trace.finding
        if wanted is None:
            for finding in broken(self.machine.cluster, step, CHECKS.values()):
                self.differs = self.differs or Difference(*at, "finding", "none", finding.sentence)
            return
        checks = _checks(wanted.invariant)
        if (self.differs is None and not last) or checks[0].kind == "eventually":
            return
        findings = list(broken(self.machine.cluster, step, checks))
        same = next((f for f in findings if _same(wanted, f)), None)
        self.shown = same or next(iter(findings), None)
        if same is None and self.differs is None:
            now = findings[0].sentence if findings else "none"
            self.differs = Difference(*at, "finding", wanted.sentence, now)

    def end(self) -> Replay:
        """The result of the replay. To judge an `eventually` invariant, the machine is driven to
        its end."""
        wanted, end = self.trace.finding, (len(self.trace.events), "the end")
        checks = _checks(wanted.invariant) if wanted and not self.shown else ()
        if wanted and checks and checks[0].kind == "eventually":
            if _stuck(self.machine, wanted.invariant):
                self.shown = wanted
            elif self.differs is None:
                how = "all requests finish from here"
                self.differs = Difference(*end, "finding", wanted.sentence, how)
        elif wanted and not self.shown and self.missed:
            self._go_on(wanted.invariant)
        verdict, reason = Verdict.SAMPLED, ""
        if self.shown:
            verdict = Verdict.VIOLATED
        elif wanted and self.parted and not self._answered:
            verdict = Verdict.UNKNOWN
            where = f"event {self.parted.step} of {len(self.trace.events)}"
            how = self.parted.why or f"the machine does {self.parted.does}"
            reason = f"not followed at {where}: {how}"
        coverage = {"examples": 1, "steps": len(self.taken)}
        outcome = Outcome(verdict, coverage, tuple(self.taken), self.shown, reason)
        return Replay(outcome, self.differs, wanted is None, self.parted)

    def _go_on(self, invariant: str) -> None:
        """Drive a machine that could not take all events to the end of its run. The effects of the
        events that it could not take may have come earlier here, or may still come."""
        run = Run(self.machine, _checks(invariant))
        try:
            drain(run, None)
        except Violated as violated:
            if violated.finding.invariant == invariant:
                self.shown = violated.finding
        self.taken += [step.event for step in run.steps]


def _same(recorded: Finding, found: Finding) -> bool:
    """Whether two findings are the same: the same check fails, about the same things. Their
    sentences may differ, because another release of kvproof may use other words. Findings of older
    traces do not record what they are about; for these the check alone decides."""
    about = recorded.about in (About(), found.about)
    return recorded.invariant == found.invariant and about


def record(machine: Machine, events: tuple[Event, ...]) -> tuple[Change, ...] | None:
    """The changes of state by each event, on a fresh machine. None if the machine does not take the
    same events."""
    last: Flat = flat(initial(machine.cluster))
    changes = []
    for event in events:
        try:
            step = machine.take(offered(machine, event))
        except NotAllowed:
            return None
        if not matches_recorded(event, step.event):
            return None
        after = flat(step.after)
        changes.append(diff(last, after))
        last = after
    return tuple(changes)


def _event_differs(step: Step, recorded: Event, at: tuple[int, str]) -> Difference | None:
    if matches_recorded(recorded, step.event):
        return None
    if bare(step.event) != bare(recorded):
        return Difference(*at, "event", describe(recorded), describe(step.event))
    return next(_blocks_differ(recorded, as_recorded(recorded, step.event), at))


def _blocks_differ(recorded: Event, event: Event, at: tuple[int, str]) -> Iterator[Difference]:
    """The lists of blocks that differ between two events with the same decisions."""
    if isinstance(recorded, Schedule) and isinstance(event, Schedule):
        for expected, choice in zip(recorded.chose or (), event.chose or (), strict=True):
            for name in BLOCKS:
                was, now = getattr(expected, name, ()), getattr(choice, name, ())
                if was != now:
                    yield Difference(*at, f"{name} of {describe(expected)}", was, now)


def _state_differs(at: tuple[int, str], expected: Flat, found: Flat) -> Difference | None:
    for pointer in sorted({*expected, *found}):
        was, now = expected.get(pointer, ABSENT), found.get(pointer, ABSENT)
        if was != now:
            return Difference(*at, pointer, was, now)
    return None


def _checks(name: str) -> tuple[Check, ...]:
    return conformance_checks() if name == CONFORMANCE else (check_named(name),)


def _stuck(machine: Machine, invariant: str) -> bool:
    """Whether some request does not finish under fair scheduling from here on. Takes further
    events."""
    try:
        drain(Run(machine, ()), invariant)
    except Violated:
        return True
    return False
