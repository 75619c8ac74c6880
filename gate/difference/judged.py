"""A machine that is driven, and whose runs go on after each finding.

A search ends at its first violation. Here every violation is recorded by its signature, with the
known finding that explains it, and the run continues from the observed state (see `Watched`). So a
check that fails early hides no later one, and the consequences of one wrong block are not counted
again. For each signature the preferred run is kept: one in which nothing broke at an earlier event,
and of these the shortest.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from kvproof.gate.difference.record import (
    NOT_TAKEN,
    Course,
    Need,
    Record,
    Recorder,
    Stands,
    standing,
)
from kvproof.gate.difference.workload import (
    Again,
    Engine,
    Episodes,
    Fixed,
    Follow,
    Planned,
    follow,
)
from kvproof.invariants.check import Check
from kvproof.invariants.registry import CHECKS
from kvproof.model import interruption, termination
from kvproof.model.because import Excuse
from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.finding import Finding, Signature, signature
from kvproof.model.known_finding import KnownFinding
from kvproof.model.machine import Machine, MakeMachine
from kvproof.model.plans.part import Taken
from kvproof.model.severity import Severity
from kvproof.model.state import Death
from kvproof.model.step import Step
from kvproof.strategies.conformance.watched import Watched
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.shrinking import length

Note = Callable[[Iterable[str]], None]
"""Called after each part of a plan with what the part shows, in words without names and numbers."""

STATEMENT_MAX = 80
"""Characters of a statement that are shown."""


def shape_in_words(shape: str) -> str:
    """The kinds of the facts that contradict each other, to be added to a line; empty where nothing
    is known of them."""
    return f", facts: {shape.replace('_', ' ')}" if shape else ""


class Key(NamedTuple):
    """What makes two breaks the same: the signature, the known finding that explains it (or an
    empty text), and for the death of an engine the exception and the function, and the statement
    that raised it. What the exception says is not compared: it has numbers and names of its run.
    `excuses` are what a break needs that is no violation by itself. `shape` says which facts
    contradict each other: a slot that holds nothing has another cause than one with KV of another
    prompt. `promise` is the check that the same event broke before an engine died of it: an
    exception in vLLM that follows is another one than where all promises were kept."""

    signature: Signature
    by: str = ""
    death: str = ""
    statement: str = ""
    excuses: tuple[Excuse, ...] = ()
    shape: str = ""
    promise: str = ""

    @property
    def dies_of(self) -> tuple[str, ...]:
        """What an engine died of, whatever the event and the cache groups were."""
        return self.signature.check, self.by, self.death, self.statement, self.promise

    @property
    def words(self) -> str:
        """The key in one line, with the facts that contradict each other."""
        return self.without_facts + shape_in_words(self.shape)

    @property
    def without_facts(self) -> str:
        """The key in one line, for a reader who has the facts in a sentence."""
        where = f", {self.death}" if self.death else ""
        where += f" ({self.statement[:STATEMENT_MAX]})" if self.statement else ""
        where += f", with {self.promise}" if self.promise else ""
        where += f", by {self.by}" if self.by else ""
        excused = "; ".join(each.says for each in self.excuses)
        return f"{self.signature.words}{where}" + (f", excused: {excused}" if excused else "")


@dataclass(frozen=True)
class Break:
    """A check that does not hold, with a run that shows it: `events` on `cluster`, which has the
    jobs of the run; the last event breaks the check.

    `by` is the name of the known finding that explains it, or an empty text. `death` is for an
    engine's death "AssertionError in some_function", and `statement` is the statement that raised
    it. `after` has what broke at earlier events, in this order: this break may be its consequence.

    A break of a connector, or of an engine core, has its plan in `plan` and no events. The cluster
    is the engine of the plan of a connector, else it has a name alone. Its check is one of the
    contract of these, which has the `severity`. The last action breaks it, or the drain after the
    last one (`drained`). `promise`: see `Key`.
    """

    signature: Signature
    by: str
    death: str
    finding: Finding
    cluster: Cluster
    events: tuple[Event, ...] = ()
    after: tuple[Key, ...] = ()
    statement: str = ""
    plan: Planned | None = None
    severity: Severity | None = None
    promise: str = ""
    drained: bool = False

    @property
    def length(self) -> int:
        """The number of events or actions of the run."""
        return length(self.run("").run)

    @property
    def at(self) -> int:
        """The number of the action that breaks the check: one more than the last, of the drain."""
        return self.length + self.drained

    def run(self, name: str) -> Fixed:
        """The run as a workload of this name."""
        if self.plan is None:
            return follow(self.cluster, name, self.events)
        return replace(self.plan, name=name)

    @property
    def key(self) -> Key:
        """What makes two breaks the same."""
        found = self.finding
        return Key(
            self.signature,
            self.by,
            self.death,
            self.statement,
            found.excuses,
            found.shape,
            self.promise,
        )

    @property
    def need(self) -> Need:
        """What the break is counted as where the runs of two machines are compared."""
        return Need.of(self.finding, self.death)

    @property
    def kind_of_run(self) -> tuple[str, ...]:
        """Of what kind the run is: the connector, if it is a plan for one, and the cache groups; of
        an engine core the kinds of layers, the connector or store, and whether its model pools."""
        if isinstance(self.plan, Engine):
            core = self.plan.plan
            parts = core.store, "connected" * core.connected, "pools" * core.pools
            return "engine core", *parts, *core.kinds
        groups = {group.kind for each in self.cluster.engines for group in each.groups}
        return self.plan.connector if self.plan is not None else "", *sorted(groups)

    @property
    def order(self) -> tuple[bool, int]:
        """The sort key: the smallest is the run to keep."""
        return bool(self.after), self.length


def keep(kept: dict[Key, Break], found: Break) -> None:
    """Keep a break, unless a preferred run with it is already kept."""
    best = kept.get(found.key)
    if best is None or found.order < best.order:
        kept[found.key] = found


@dataclass
class Judgement:
    """What was found in some runs.

    `breaks` has the preferred run of each break, in the order in which they were found, and
    `excused` that of each break that has excuses. `records`, `taken` and `kinds` have one entry for
    each run: what it shows, and the run itself, or the cache groups of its plan. `course` is how
    the last run was taken. `without_loops` and `unconnected` are those of `Result`.
    """

    steps: int = 0
    course: Course = NOT_TAKEN
    breaks: dict[Key, Break] = field(default_factory=dict)
    excused: dict[Key, Break] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    kinds: tuple[str, ...] = ()
    without_loops: str = ""
    unconnected: int = 0

    def note(self, found: Break) -> None:
        """Keep a break, unless a preferred run with it is already kept."""
        keep(self.breaks if not found.finding.excuses else self.excused, found)


class JudgedMachine(Watched):
    """A machine whose violations are recorded in a judgement and do not end its run. `known` are
    the known findings that may explain them. Several machines may share a judgement. `judged` are
    the checks that had something to judge, when the run is over, and `stands` how the requests
    stood before the last stimulus that was given. It `lacks` stimuli that were not possible."""

    def __init__(
        self,
        machine: Machine,
        known: Iterable[KnownFinding] = (),
        judgement: Judgement | None = None,
    ) -> None:
        super().__init__(machine, known)
        self.judged: tuple[str, ...] = ()
        self.stands: tuple[Stands, ...] = ()
        self.judgement = Judgement() if judgement is None else judgement
        self.seen: dict[Key, int] = {}
        self.needed: dict[Key, int] = {}
        self.recorder = Recorder()
        self.lacks = False

    def take(self, event: Event) -> Step:
        """Take one event."""
        step = super().take(event)
        self.judgement.steps += 1
        self.recorder.step(step, self.shown())
        return step

    def note_excused(self, step: Step, findings: Sequence[Finding]) -> None:
        """Record what has an excuse: the pair of base and head judges it."""
        for finding in findings:
            self._judged(step, finding, self.needed)

    def goes_on(self, step: Step, finding: Finding) -> bool:
        """No finding ends the run. Each is recorded."""
        self._judged(step, finding, self.seen)
        return True

    def _judged(self, step: Step, finding: Finding, before: dict[Key, int]) -> None:
        """Record a break, and keep it if none `before` in this run was the same."""
        found = self._found(step, finding)
        self.recorder.judged(found.need)
        if found.key not in before:
            before[found.key] = len(self.taken)
            self.judgement.note(found)

    def _found(self, step: Step, finding: Finding) -> Break:
        now = len(self.taken)
        dead = _death(step, finding)
        return Break(
            signature=signature(self.cluster, step.event, finding),
            by="" if finding.excuses else self.explained_by(step, finding),
            death=death_of(step, finding),
            finding=finding,
            cluster=self.cluster,
            events=tuple(self.taken),
            after=tuple(key for key, at in self.seen.items() if at < now),
            statement=dead.statement if dead is not None else "",
        )

    def close(self) -> None:
        """The run is over."""
        deaths = (engine.dead for engine in self.state.engines if engine.dead is not None)
        dead = next((death.words for death in deaths), "")
        ended, events = not dead and termination.over(self.state), tuple(self.taken)
        into = self.judgement
        into.course = Course(dead, ended, self.recorder.skipped, self.judged, self.stands)
        into.records.append(self.recorder.made(whole=ended and not self.lacks))
        into.taken.append(Taken(self.cluster, events))
        super().close()


def death_of(step: Step, finding: Finding) -> str:
    """The exception and the function of the death that a finding of `engine_survives` is about:
    "AssertionError in some_function". Empty for every other finding."""
    dead = _death(step, finding)
    return dead.place if dead is not None else ""


def _death(step: Step, finding: Finding) -> Death | None:
    """The death that a finding of `engine_survives` is about; None for every other finding."""
    if finding.invariant != "engine_survives":
        return None
    return step.after.engine(finding.about.engine).dead


def driven(
    workload: Follow | Again | Episodes,
    make_machine: MakeMachine,
    invariants: Iterable[Check] = tuple(CHECKS.values()),
    known: Iterable[KnownFinding] = (),
) -> Judgement:
    """What a machine breaks in a workload. A stimulus that is not possible when its turn comes is
    skipped, because this machine made other choices; then the run is driven to its end. Random
    episodes are generated as in `stateful.sample`. Exceptions of the machine are passed on."""
    judgement, checks, explaining = Judgement(), tuple(invariants), tuple(known)

    def make(cluster: Cluster) -> JudgedMachine:
        return JudgedMachine(make_machine(cluster), explaining, judgement)

    if isinstance(workload, Episodes):
        seed, number, steps = workload.seed, workload.episodes, workload.steps
        sample(workload.cluster, make, checks, seed, number, steps, shrink=False)
        interruption.check()  # else a part of the runs would count as all of them
        return judgement
    for run in workload.runs:
        with closing(make(run.cluster)) as machine:
            _follow(Run(machine, checks), machine, run)
    return judgement


def _follow(run: Run, machine: JudgedMachine, taken: Taken) -> None:
    """Take the stimuli of a run, and drive it to its end."""
    before = machine.state
    for number, (before, possible) in enumerate(run.follow(taken.events)):  # noqa: B007 (see below)
        skipped = not (possible or run.dead)
        machine.recorder.skipped += skipped
        machine.lacks |= skipped and number >= taken.before
    machine.stands = standing(before)
    drain(run, next((i.id for i in run.invariants if i.kind == "eventually"), None))
    machine.judged = tuple(name for name, times in run.tally.judged.items() if times)
