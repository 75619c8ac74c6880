"""One run of a machine: the steps it took, each checked against the invariants."""

from collections.abc import Iterable, Iterator

from kvproof.invariants.check import Check, Tally, broken
from kvproof.invariants.registry import CHECKS, gravest
from kvproof.model.config import Cluster, Job
from kvproof.model.events import Complete, Event, describe, stimulus
from kvproof.model.finding import Finding
from kvproof.model.machine import Machine, ModelMachine
from kvproof.model.state import State
from kvproof.model.step import Step
from kvproof.strategies.count_conformance import conformance_checks


class Violated(Exception):
    """An invariant does not hold. The exception carries the run that shows it, and in `others` the
    findings at the same event that are not more severe."""

    def __init__(
        self,
        cluster: Cluster,
        finding: Finding,
        steps: tuple[Step, ...],
        others: tuple[Finding, ...] = (),
    ) -> None:
        super().__init__(finding.invariant)
        self.finding = finding
        self.others = others
        self.cluster = cluster
        self.steps = steps

    def __str__(self) -> str:
        """The finding, the jobs and the events: what a failing test should print."""
        jobs = [f"  {job}" for job in self.cluster.jobs]
        events = [f"  {n}. {describe(event)}" for n, event in enumerate(self.events, 1)]
        return "\n".join((f"{self.finding.invariant}: {self.finding.sentence}", *jobs, *events))

    @property
    def events(self) -> tuple[Event, ...]:
        """The events taken, with all choices filled in; the last one breaks the finding's
        invariant."""
        return tuple(step.event for step in self.steps)


class Run:
    """A machine being driven. `steps` are the steps taken so far, and `tally` counts what the
    checks judged in them. Without `invariants`, all checks are asked; each step of the reference
    must then also be a transition of the systems that are proved."""

    def __init__(self, machine: Machine, invariants: Iterable[Check] | None = None) -> None:
        self.machine = machine
        if invariants is None:
            of_model = conformance_checks() if isinstance(machine, ModelMachine) else ()
            invariants = (*CHECKS.values(), *of_model)
        self.invariants = tuple(invariants)
        self.steps: list[Step] = []
        self.tally = Tally()
        self.stimuli = machine.stimuli()

    @property
    def dead(self) -> bool:
        """Whether an engine has died. A dead engine takes no more events."""
        return any(engine.dead for engine in self.machine.state.engines)

    def add_jobs(self, jobs: Iterable[Job]) -> None:
        """Add jobs to the traffic."""
        for job in jobs:
            self.machine.add_job(job)
        self.stimuli = self.machine.stimuli()

    def take(self, event: Event) -> None:
        """Take one event. If the only event possible next is the output of the step that it
        started, take that too.

        Raises Violated with the most severe invariant that does not hold. Any other exception of
        the machine is passed on, with a note of the events before it.
        """
        self.take_one(event)
        while self._only_output:
            self.take_one(self.stimuli[0])

    def take_one(self, event: Event) -> None:
        """Take one event only."""
        try:
            step = self.machine.take(event)
        except Exception as error:
            taken = "\n".join(describe(s.event) for s in self.steps)
            error.add_note(f"while taking {describe(event)} after\n{taken}")
            raise
        self.steps.append(step)
        self.stimuli = self.machine.stimuli()
        found = list(broken(self.machine.cluster, step, self.invariants, self.tally))
        if excused := self.tally.take_kept():
            self.machine.note_excused(step, excused)
        self.fail(*found)

    def follow(self, events: Iterable[Event]) -> Iterator[tuple[State, bool]]:
        """Take the stimuli of these events, one by one, but for those that are not possible when
        their turn comes, because this machine made other choices. The output of a step that nothing
        else can precede is taken where the next stimulus needs it: a run that was made shorter may
        lack it. Yields for each event the state before it, and whether it was taken."""
        for event in map(stimulus, events):
            while event not in self.stimuli and self._only_output:
                self.take_one(self.stimuli[0])
            before, possible = self.machine.state, event in self.stimuli
            if possible:
                self.take_one(event)
            yield before, possible

    @property
    def _only_output(self) -> bool:
        """Whether the output of a step is all that can come next."""
        return len(self.stimuli) == 1 and isinstance(self.stimuli[0], Complete)

    def fail(self, *findings: Finding) -> None:
        """Raise Violated for the most severe of these findings at this point of the run, leaving
        out findings that a known finding of the machine explains at its last step."""
        last = self.steps[-1] if self.steps else None
        news = self.machine.unexplained(last, findings) if last else list(findings)
        if news:
            first, *others = gravest(news)
            raise Violated(self.machine.cluster, first, tuple(self.steps), tuple(others))
