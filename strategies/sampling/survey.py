"""A survey: a machine is driven, and its runs continue after a violation.

A search ends with the first violation. A survey records it and continues, so that an invariant that
breaks early does not hide others. For each invariant it keeps the shortest run that breaks it, and
whether in some run this invariant was the first to break: an invariant that breaks only after
another one may be its consequence.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kvproof.invariants.registry import INVARIANTS
from kvproof.model import interruption
from kvproof.model.config import Cluster
from kvproof.model.events import Event, stimulus
from kvproof.model.finding import Finding
from kvproof.model.machine import Machine
from kvproof.model.step import Step
from kvproof.strategies.conformance.around import Around
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run
from kvproof.strategies.sampling.episode import MakeMachine
from kvproof.strategies.sampling.stateful import sample

EVENTUALLY = next(i.id for i in INVARIANTS.values() if i.kind == "eventually")


@dataclass(frozen=True)
class Broken:
    """An invariant that broke, with the shortest run that breaks it. `after` names the invariants
    that broke earlier in that run. A run in which no other broke earlier is preferred to a shorter
    one."""

    finding: Finding
    cluster: Cluster
    events: tuple[Event, ...]
    after: tuple[str, ...]

    @property
    def order(self) -> tuple[bool, int]:
        """The sort key: the smallest is the run to keep."""
        return bool(self.after), len(self.events)


@dataclass
class Survey:
    """What a survey found, by invariant. `died` counts the runs that an engine's death ended early;
    `death` describes the first of them."""

    runs: int = 0
    steps: int = 0
    died: int = 0
    death: str = ""
    broken: dict[str, Broken] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def note(self, broken: Broken) -> None:
        """Keep the run, unless a preferred run is already kept."""
        name = broken.finding.invariant
        kept = self.broken.get(name)
        if kept is None or broken.order < kept.order:
            self.broken[name] = broken


class Surveyed(Around):
    """A machine whose violations are recorded and do not end its run."""

    def __init__(self, machine: Machine, survey: Survey) -> None:
        super().__init__(machine)
        self.survey = survey
        self.events: list[Event] = []
        self.seen: list[str] = []

    def take(self, event: Event) -> Step:
        """Take one event."""
        step = super().take(event)
        self.events.append(step.event)
        self.survey.steps += 1
        return step

    def unexplained(self, _step: Step, findings: Sequence[Finding]) -> list[Finding]:
        """No finding ends the run. The first finding of each invariant in the run is recorded."""
        for finding in findings:
            if finding.invariant not in self.seen:
                after = tuple(self.seen)
                self.seen.append(finding.invariant)
                counts = self.survey.counts
                counts[finding.invariant] = counts.get(finding.invariant, 0) + 1
                self.survey.note(Broken(finding, self.cluster, tuple(self.events), after))
        return []

    def close(self) -> None:
        """The run is over."""
        self.survey.runs += 1
        dead = [engine.dead for engine in self.state.engines if engine.dead]
        if dead:
            self.survey.died += 1
            self.survey.death = self.survey.death or dead[0]
        super().close()


def sampled(
    cluster: Cluster, make_machine: MakeMachine, seed: int, episodes: int, steps: int
) -> Survey:
    """Random episodes, generated as in `stateful.sample`. Exceptions of the machine are passed
    on."""
    survey = Survey()

    def make(chosen: Cluster) -> Machine:
        return Surveyed(make_machine(chosen), survey)

    asked = INVARIANTS.values()
    sample(cluster, make, asked, seed=seed, examples=episodes, steps=steps, shrink=False)
    interruption.check()  # else a part of the survey would count as all of it
    return survey


@contextmanager
def _running(machine: Surveyed) -> Iterator[Run]:
    try:
        yield Run(machine, INVARIANTS.values())
    finally:
        machine.close()


def followed(cluster: Cluster, make_machine: MakeMachine, events: Iterable[Event]) -> Survey:
    """One run that takes the stimuli of a trace and is then driven to its end. A stimulus that is
    not possible when its turn comes is skipped, because this machine made other choices."""
    survey = Survey()
    with _running(Surveyed(make_machine(cluster), survey)) as run:
        for event in map(stimulus, events):
            if event in run.stimuli:
                run.take(event)
        drain(run, EVENTUALLY)
    return survey


def shows(survey: Survey, finding: Finding) -> bool:
    """Whether a survey shows the same violation: the same invariant is broken and, for a death, the
    same engine died."""
    broken = survey.broken.get(finding.invariant)
    if broken is None:
        return False
    died = " died"
    ours, theirs = broken.finding.reasons[-1], finding.reasons[-1]
    return died not in theirs or ours.split(died)[0] == theirs.split(died)[0]
