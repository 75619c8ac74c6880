"""What one side shows of one run: the unit in which base and head are compared.

Both sides take the same run. What either shows of it is plain data: a number for all that can be
seen after each event, what was counted, and the excuses that breaks of checks needed.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from kvproof.invariants.check import FOUND
from kvproof.live.marks import mark
from kvproof.model.because import Excuse, choice, release
from kvproof.model.events import Compute, Schedule
from kvproof.model.finding import Finding
from kvproof.model.phases import Phase
from kvproof.model.severity import Severity
from kvproof.model.state import Engine, State
from kvproof.model.step import Step

ANY = "for any reason"
"""The excuse that stands for all of its kind."""


class Need(NamedTuple):
    """What tells one break from another where base and head are compared: the check, all excuses
    that the break has and, where it has none, which facts contradict each other (`shape`). Of the
    death of an engine that is the exception and the function that raised it, as `death`."""

    check: str
    excuses: tuple[Excuse, ...] = ()
    shape: str = ""
    death: str = ""

    @classmethod
    def of(cls, finding: Finding, death: str = "") -> "Need":
        """What a break needs."""
        if finding.excuses:
            return cls(finding.invariant, tuple(sorted(finding.excuses)))
        return cls(finding.invariant, shape="" if death else finding.shape, death=death)

    @property
    def is_choice(self) -> bool:
        """Whether a good scheduler may do what needs these excuses."""
        return any(each.kind == "choice" for each in self.excuses)

    @property
    def like(self) -> "Need":
        """What stands for all breaks of this check that are like it: those without an excuse in
        whatever shape, those that a good scheduler may have, or the other ones with excuses."""
        if not self.excuses:
            return Need(self.check)
        return Need(self.check, (choice(ANY) if self.is_choice else release(ANY),))

    def covers(self, other: "Need") -> bool:
        """Whether this has all excuses of another need of the same check."""
        return self.check == other.check and {*self.excuses} >= {*other.excuses}


class Needed(Struct, frozen=True, forbid_unknown_fields=True):
    """How often a run needed the same excuses for the same check."""

    need: Need
    times: int


class Broken(Struct, frozen=True, forbid_unknown_fields=True):
    """A break without an excuse, and the number of stimuli that came before its first one."""

    need: Need
    place: int = 0


class Fatal(NamedTuple):
    """What ended the engine of a plan: the number of the action, from 1 on, the exception with its
    function, and the statement."""

    action: int
    place: str
    statement: str


class Record(Struct, frozen=True, forbid_unknown_fields=True):
    """What a side shows of a run. `marks` has a number for each event: two sides have the same
    where everything that can be seen after it is equal. `counts` are sums over the run, by the
    names of `COUNTED`. `needed` are the excuses that breaks of checks had, and `broken` the breaks
    without one. `whole` says that the run came to its end with all of its stimuli; `skipped` were
    not possible when their turn came. `fatal` is what ended it, if it is a plan whose engine
    died."""

    marks: tuple[int, ...] = ()
    counts: dict[str, int] = {}
    needed: tuple[Needed, ...] = ()
    broken: tuple[Broken, ...] = ()
    whole: bool = False
    skipped: int = 0
    fatal: Fatal | None = None

    def counted(self, name: str) -> int:
        """What the run has of a quantity of `COUNTED`."""
        return self.counts.get(COUNTER.get(name, name), 0)

    @property
    def checks(self) -> set[str]:
        """The checks that were broken without an excuse."""
        return {each.need.check for each in self.broken}

    def is_past(self, place: int) -> bool:
        """Whether the run went on after the stimulus before which so many came."""
        return self.whole or len(self.marks) + self.skipped > place + 1

    def excuses_of(self, check: str) -> set[Excuse]:
        """All excuses that breaks of a check had in this run."""
        of_it = (each.need for each in self.needed if each.need.check == check)
        return {excuse for need in of_it for excuse in need.excuses}


class Stands(Struct, frozen=True, forbid_unknown_fields=True):
    """A request on an engine: its status, and whether it holds blocks."""

    engine: str
    request: str
    status: str
    holds: bool


class Course(Struct, frozen=True, forbid_unknown_fields=True):
    """How a machine took a run. `dead` says how an engine died, else it is empty; `ended` that all
    requests came to their end. So many of the events were not possible (`skipped`). `judged` are
    the checks that had something to judge. `stands` are the requests before the last of the events
    or actions, and `left` those of a plan before the drain that ends it."""

    dead: str = ""
    ended: bool = False
    skipped: int = 0
    judged: tuple[str, ...] = ()
    stands: tuple[Stands, ...] = ()
    left: tuple[Stands, ...] = ()


NOT_TAKEN = Course()


def standing(state: State) -> tuple[Stands, ...]:
    """All requests of a state."""
    return tuple(
        Stands(engine.name, each.id, each.status, any(each.tables))
        for engine in state.engines
        for each in engine.requests
    )


COUNTED = {
    "tokens hit": "less",
    "tokens offered by a connector": "less",
    "blocks loaded from lower tiers": "less",
    "tokens computed": "more",
    "encoder items computed": "more",
    "steps": "more",
    "last steps of requests": "more",
    "free blocks at the end": "less",
    "transfers pending at the end": "more",
    "blocks held after requests": "more",
    "events published": "more",
    "fewer events published": "less",
    "blocks of a started engine": "less",
    "blocks held by a lone request": "more",
}
"""What is counted in each run, with what is worse. The last steps are summed over the requests that
ended: the number of the step in which each did. Free blocks are those of every pool, also a
connector's, when the engines are idle; those that are held after their requests have ended are
summed over the steps. An event of a connector counts once for each of its blocks. More events may
be worse, and fewer: they are counted once and have two lines. The list is fixed: each further line
makes chance more likely (`costs.LIKELY`)."""

COUNTER = {"fewer events published": "events published"}
"""The line whose number a line has, where that is not its own."""


class Recorder:
    """Makes the record of one run, event by event. `skipped` counts the stimuli that were not
    possible when their turn came."""

    def __init__(self) -> None:
        self._marks: list[int] = []
        self._counts: Counter[str] = Counter()
        self._needs: Counter[Need] = Counter()
        self._broken: dict[Need, int] = {}
        self._steps = 0
        self.skipped = 0

    def step(self, step: Step, shown: Iterable[object] = ()) -> None:
        """Note a step of a cluster, and what its engines answered and say of themselves."""
        self.seen((*_seen(step), *shown))
        for name, number in _counts(step):
            self.count(name, number)
        self._steps += isinstance(step.event, Schedule)
        self.count("blocks held after requests", _held_after_end(step.after))
        ended = {*step.after.ended} - {*step.before.ended}
        self.count("last steps of requests", len(ended) * self._steps)
        self.at_end("free blocks at the end", sum(len(e.free) for e in step.after.engines))
        moving = [each for each in step.after.transfers if each.phase != Phase.CLOSED]
        self.at_end("transfers pending at the end", len(moving))

    def seen(self, things: Iterable[object]) -> None:
        """Note what can be seen after an event."""
        self._marks.append(mark(things))

    def marked(self, marks: Iterable[int]) -> None:
        """Note the marks of events of which no more than these is known."""
        self._marks += marks

    def count(self, name: str, number: int) -> None:
        """Add to one of the sums of `COUNTED`."""
        self._counts[name] += number

    def at_end(self, name: str, number: int) -> None:
        """Set what the run has of a quantity that is counted at its end."""
        self._counts[name] = number

    def judged(self, need: Need) -> None:
        """Note a break at the last event, with or without excuses."""
        if need.excuses:
            self._needs[need] += 1
        else:
            self._broken.setdefault(need, max(len(self._marks) - 1, 0) + self.skipped)

    def made(self, *, whole: bool) -> Record:
        """The record, when the run is over."""
        needed = tuple(Needed(need, times) for need, times in sorted(self._needs.items()))
        broken = tuple(Broken(need, place) for need, place in self._broken.items())
        marks, counts = tuple(self._marks), dict(self._counts)
        return Record(marks, counts, needed, broken, whole, self.skipped)


def _counts(step: Step) -> Iterator[tuple[str, int]]:
    """What one step adds to each sum, but for what is counted at the end."""
    admissions = step.effects.admissions
    yield "tokens hit", sum(each.hit for each in admissions)
    yield "tokens offered by a connector", sum(each.external for each in admissions)
    scheduled = isinstance(step.event, Schedule)
    yield "steps", int(scheduled)
    yield "events published", len(step.effects.reports)
    choices: Iterable[object] = (step.event.chose or ()) if scheduled else ()  # type: ignore[union-attr]
    yield "tokens computed", sum(each.tokens for each in choices if isinstance(each, Compute))


def _held_after_end(state: State) -> int:
    """The blocks in the tables of requests that have ended."""
    return sum(
        len({block for table in request.tables for block in table})
        for engine in state.engines
        for request in engine.requests
        if (engine.name, request.id) in state.ended
    )


def _seen(step: Step) -> Iterator[object]:
    """What another part of vLLM or a user can see in the states of a step: the choices, queues,
    tables, references, the order of the free queue, what is cached, and the transfers. The answers
    come from the machine (`live.observer.shown`)."""
    effects = step.effects
    yield step.event
    yield [each[:3] + each[4:6] for each in effects.admissions]
    yield effects.reports, effects.copies, effects.resets, effects.places, effects.zeroed
    yield step.after.transfers
    for engine in step.after.engines:
        yield from _engine(engine)


def _engine(engine: Engine) -> Iterator[object]:
    yield engine.name, engine.free, sorted(engine.cached), sorted(engine.stored)
    yield [block.refs for block in engine.blocks]
    yield engine.running, engine.step, engine.steps, engine.deferred
    for each in engine.requests:
        yield each.id, each.status, each.tokens, each.computed, each.tables, each.external
    dead = engine.dead
    yield dead.place if dead else ""


def severity_of(check: str) -> Severity:
    """What a user would notice. A guard without a severity is bookkeeping by itself."""
    known = FOUND.get(check)
    return (known and known.severity) or Severity.BOOKKEEPING


class Pair(NamedTuple):
    """The records of base and head of one run."""

    base: Record
    head: Record

    @property
    def comparable(self) -> bool:
        """Whether both took the run to its end."""
        return self.base.whole and self.head.whole

    @property
    def ends_both(self) -> int | None:
        """The index of the action in which both engines died of the same; None where they did
        not."""
        base, head = self.base.fatal, self.head.fatal
        return base.action - 1 if base is not None and base == head else None

    @property
    def parts_at(self) -> int | None:
        """The index of the first event after which the sides differ; None where they never do. Of
        two runs that do not come to their end, one may have been driven further."""
        both = zip(self.base.marks, self.head.marks, strict=False)
        first = next((n for n, (one, other) in enumerate(both) if one != other), None)
        shorter, longer = sorted((len(self.base.marks), len(self.head.marks)))
        if first is None and shorter < longer and (self.base.whole or self.head.whole):
            return shorter
        return first

    @property
    def new_needs(self) -> list[Need]:
        """The needs of head in this run of which base, which breaks the same check less, has not
        each excuse."""
        return [
            each.need
            for each in self.head.needed
            if each.need.check not in self.base.checks
            and {*each.need.excuses} - self.base.excuses_of(each.need.check)
        ]

    @property
    def new_on_head(self) -> list[Need]:
        """The breaks of checks that head alone breaks in this run, if base was driven past them,
        and the new needs of head, if both took the run to its end."""
        base = self.base
        alone = [
            each.need
            for each in self.head.broken
            if each.need.check not in base.checks and base.is_past(each.place)
            if not self._is_owed(each)
        ]
        return [*self.new_needs, *alone] if self.comparable else alone

    @property
    def unasked(self) -> list[Need]:
        """The breaks of head past whose places base was not driven: this run does not say whether
        base breaks the same there."""
        base = self.base
        return [
            each.need
            for each in self.head.broken
            if each.need.check not in base.checks and not base.is_past(each.place)
        ]

    def explains(self, need: Need) -> bool:
        """Whether base says in this run why head breaks something: it breaks the same check, or has
        served well by a defect of its own."""
        return need not in (*self.new_on_head, *self.unasked)

    def follows(self, need: Need, of_base: Collection[Need]) -> bool:
        """Whether a break of head, which is none of these, may follow from one of them, which base
        breaks in other runs: head alone breaks that one in this run, and no later. A leak may have
        graver consequences; what is less grave has none, and would hide what fails a run."""
        if need in of_base:
            return False
        least = max(severity_of(need.check), Severity.LEAK)
        alone = [each for each in self.head.broken if each.need.check not in self.base.checks]
        place = next((each.place for each in alone if each.need == need), -1)
        return any(
            each.place <= place and each.need.check != need.check and each.need in of_base
            for each in alone
            if severity_of(each.need.check) <= least
        )

    def _is_owed(self, broken: Broken) -> bool:
        """Whether head loses performance, and base alone breaks something graver by then: what base
        did well it owes to its defect."""
        grave = severity_of(broken.need.check)
        return grave >= Severity.LOST_PERFORMANCE and any(
            severity_of(each.need.check) < grave
            for each in self.base.broken
            if each.place <= broken.place and each.need.check not in self.head.checks
        )

    def worse(self, name: str) -> int:
        """By how much head counts worse than base, negative where it counts better."""
        more = self.head.counted(name) - self.base.counted(name)
        return more if COUNTED[name] == "more" else -more
