"""What a watched engine is asked after each event, and what is done with the answers."""

import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kvproof.invariants.engine_survives import died
from kvproof.invariants.invariant import Invariant, broken
from kvproof.invariants.registry import INVARIANTS
from kvproof.live.death import death_of
from kvproof.live.watch.history import History
from kvproof.live.watch.hooks import MISTAKES
from kvproof.live.watch.noted import Noted
from kvproof.live.watch.parts.part import Part
from kvproof.live.watch.parts.registry import PARTS
from kvproof.model.because import because, reason
from kvproof.model.finding import Finding

Parts = dict[Part, list[Invariant]]


class Violation(Exception):
    """An invariant does not hold on a running engine."""


class Judge:
    """Asks the invariants about parts of an engine.

    `report` is called for each finding, `say` for each mistake of kvproof, and `judged` after each
    event that was judged, with whether it is a step, and whether the engine has nothing more to do.
    `steps` counts the steps, `trusted` the loads that are taken to be right. `skipped` has the
    invariants that mean nothing on this engine, with the reason, and `why_off` what is not judged
    any more because of a mistake of kvproof. `no_bytes` says why bytes are not judged, where they
    should be."""

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
        self.asked: Counter[str] = Counter()
        self.unjudged: Counter[str] = Counter()
        self.trusted: Counter[str] = Counter()
        self.skipped: dict[str, str] = {}
        self.why_off: list[str] = []
        self.by_hand = self.no_bytes = ""

    def parts(self, seen: Noted) -> Parts:
        """The parts of an engine, each with its invariants. The judge does not keep them: it may be
        kept longer than the engine."""
        parts: Parts = {}
        self.unjudged, self.trusted = seen.unjudged, seen.trusted
        for part in (each(seen) for each in PARTS):
            skipped = part.skipped()
            self.skipped |= {name: skipped[name] for name in part.judges if name in skipped}
            names = [name for name in part.judges if name not in skipped]
            if names:
                parts[part] = [INVARIANTS[name] for name in names]
        return parts

    def look(self, seen: Noted, parts: Parts) -> None:
        """Judge what an event has touched."""
        for part, invariants in list(parts.items()):
            try:
                self._ask(part, invariants, seen)
            except self.passed_on:
                raise
            except MISTAKES as error:
                names = ", ".join(each.id for each in parts.pop(part))
                self.mistake(error, f"it judges {names} no more")

    def _ask(self, part: Part, invariants: list[Invariant], seen: Noted) -> None:
        for step, times in part.questions():
            for invariant in invariants:
                self.asked[invariant.id] += times
                for finding in broken(seen.cluster, step, [invariant]):
                    part.found(finding)
                    self.report(finding, seen.history)

    def died(self, seen: Noted, what: str, error: Exception) -> None:
        """vLLM raised an exception."""
        self.asked["engine_survives"] += 1
        must = reason("must_survive", "every engine must survive {event}", event=what)
        dead = death_of(error, traceback.extract_tb(error.__traceback__)[-1])
        why = because(must, died(dead), engine=seen.cfg.name)
        self.report(Finding("engine_survives", *why), seen.history)

    def failed(self, error: BaseException) -> None:
        """A hook of kvproof made a mistake, and kvproof watches no more."""
        self.mistake(error, "it watches this engine no more")

    def mistake(self, error: BaseException, then: str) -> None:
        """A mistake of kvproof, and what is done then."""
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}, line {place.lineno}"
        why = f"{type(error).__name__}: {error}, in {where}".replace("\n", " ")
        self.why_off.append(f"{why}; {then}")
        if self.say is not None:
            self.say(f"kvproof made a mistake ({why}): {then}, and vLLM goes on.")

    def stopped(self, why: str) -> None:
        """The engine was changed by hand, and what it does from now on says nothing."""
        self.by_hand = why
