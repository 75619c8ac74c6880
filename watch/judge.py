"""This module asks the checks after each event of a watched engine."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from kvproof.invariants.check import Check, broken
from kvproof.invariants.registry import why_hidden
from kvproof.live.death import death_of, place
from kvproof.live.observer.hooks import MISTAKES
from kvproof.model.events import Complete, Schedule
from kvproof.model.finding import Finding
from kvproof.model.needs import Need
from kvproof.model.state import Engine, State
from kvproof.model.step import Effects, Step
from kvproof.watch.history import History
from kvproof.watch.notes import EngineNotes
from kvproof.watch.parts.admissions import Hits, Repeated
from kvproof.watch.parts.blocks import (
    CachedBlocks,
    Gained,
    IdleBlocks,
    KeptItems,
    LostEntries,
    Resets,
    TouchedBlocks,
)
from kvproof.watch.parts.in_flight import FailedLoads, Placeholders, Settled
from kvproof.watch.parts.kv_events import Carried, Mirror
from kvproof.watch.parts.part import Part
from kvproof.watch.parts.requests import Priority, Reads, TouchedQueues, TouchedRequests
from kvproof.watch.parts.steps import (
    Admissions,
    Allocations,
    EmptyStep,
    Places,
    StepBatch,
    StepCounts,
    Watermark,
)
from kvproof.watch.parts.transfers import Offers, Transfers
from kvproof.watch.parts.writes import Writes
from kvproof.watch.parts.zeroed import Zeroed
from kvproof.watch.shown import Views

Parts = dict[Part, list[Check]]


class Violation(Exception):
    """A check does not hold on a running engine."""


class Judge:
    """Ask the checks about parts of an engine.

    `report` is called for each finding, `say` for each mistake of kvproof, and `judged` after each
    event that was judged, with whether it is a step, and whether the engine has nothing more to do.
    `steps` counts the steps, `trusted` the loads that are taken to be right, and
    `shared` what became of the tokens that requests share with earlier ones. `skipped` has the
    checks that need what this engine does not show, with the reason, and `why_off` what is judged
    no more because of a mistake of kvproof. `no_bytes` says why bytes are not judged, where they
    should be.
    """

    passed_on = (Violation,)

    def __init__(
        self,
        report: Callable[[Finding, History], None],
        say: Callable[[str], None] | None = None,
        judged: Callable[[bool, bool], None] = lambda _step, _idle: None,
    ) -> None:
        self.report = report
        self.say = say
        self.judged = judged
        self.steps = 0
        self.times_judged: Counter[str] = Counter()
        self.unjudged: Counter[str] = Counter()
        self.trusted: Counter[str] = Counter()
        self.shared: Counter[str] = Counter()
        self.skipped: dict[str, str] = {}
        self.why_off: list[str] = []
        self.by_hand = self.no_bytes = ""

    def parts(self, seen: EngineNotes) -> Parts:
        """Return the parts of an engine, each with its checks. The judge does not keep them: it may
        be kept longer than the engine."""
        self.unjudged, self.trusted = seen.unjudged, seen.trusted
        parts: Parts = {}
        for part in (each(seen) for each in PARTS):
            parts[part] = list(self._shown(part.view, part.hidden()))
        return {part: checks for part, checks in parts.items() if checks}

    def _shown(self, view: Views, hidden: Mapping[Need, str]) -> Iterator[Check]:
        """Return the checks that a view of this engine is asked, and note why the others are
        not."""
        for check in view.checks:
            if why := why_hidden(check, hidden):
                self.skipped[check.id] = why
            else:
                yield check

    def look(self, seen: EngineNotes, parts: Parts) -> None:
        """Judge what an event has touched."""
        for part, checks in list(parts.items()):
            try:
                self._ask(part, checks, seen)
            except self.passed_on:
                raise
            except MISTAKES as error:
                names = ", ".join(each.id for each in parts.pop(part))
                self.mistake(error, f"it judges {names} no more")

    def _ask(self, part: Part, checks: list[Check], seen: EngineNotes) -> None:
        for step, times in part.questions():
            for finding in self._findings(step, seen, checks, times):
                part.found(finding)
                self.report(finding, seen.history)

    def _findings(
        self, step: Step, seen: EngineNotes, checks: Iterable[Check], times: int = 1
    ) -> Iterator[Finding]:
        for check in checks:
            self.times_judged[check.id] += times
            yield from broken(seen.cluster, step, [check])

    def died(self, seen: EngineNotes, what: str, error: Exception) -> None:
        """Report that vLLM raised an exception in `what`, which ends the engine."""
        name = seen.cfg.name
        event = Schedule(name, ()) if what == "schedule" else Complete(name)
        alive = Engine(name, (), ())
        death = death_of(error)
        dead = alive._replace(dead=death)
        step = Step(State((alive,)), event, Effects(), State((dead,)))
        for finding in self._findings(step, seen, Views.DEATH.checks):
            self.report(finding, seen.history)

    def failed(self, error: BaseException) -> None:
        """Note that a hook of kvproof made a mistake: this engine is watched no more."""
        self.mistake(error, "it watches this engine no more")

    def mistake(self, error: BaseException, then: str) -> None:
        """Note a mistake of kvproof, say it, and say what is done then."""
        raised = place(error)
        where = f"{Path(raised.filename).name}, line {raised.lineno}"
        why = f"{type(error).__name__}: {error}, in {where}".replace("\n", " ")
        self.why_off.append(f"{why}; {then}")
        if self.say is not None:
            self.say(f"kvproof made a mistake ({why}): {then}, and vLLM goes on.")

    def stopped(self, why: str) -> None:
        """Note that the engine was changed by hand: what it does from now on says nothing."""
        self.by_hand = why


PARTS: tuple[type[Part], ...] = (
    TouchedBlocks,
    Allocations,
    Reads,
    StepBatch,
    StepCounts,
    Admissions,
    Gained,
    LostEntries,
    Writes,
    CachedBlocks,
    TouchedRequests,
    TouchedQueues,
    Settled,
    Placeholders,
    Transfers,
    Offers,
    FailedLoads,
    Hits,
    Repeated,
    Zeroed,
    Places,
    EmptyStep,
    Priority,
    Watermark,
    Resets,
    Mirror,
    Carried,
    IdleBlocks,
    KeptItems,
)
"""All parts of an engine that are judged, in the order in which they are asked about."""
