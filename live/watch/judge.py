"""What a watched engine is asked after each event, and what is done with the answers."""

from collections import Counter
from collections.abc import Callable

from kvproof.invariants.invariant import Invariant, broken
from kvproof.invariants.registry import INVARIANTS
from kvproof.live.watch.history import History
from kvproof.live.watch.hooks import MISTAKES
from kvproof.live.watch.noted import Noted
from kvproof.live.watch.parts.part import Part
from kvproof.live.watch.parts.registry import PARTS
from kvproof.model.finding import Finding


class Violation(Exception):
    """An invariant does not hold on a running engine."""


class Judge:
    """Asks the invariants about parts of an engine.

    `report` is called for each finding, `say` for each mistake of kvproof. `skipped` has the
    invariants that mean nothing on this engine, with the reason, and `why_off` what is not judged
    any more because of a mistake of kvproof."""

    passed_on = (Violation,)

    def __init__(
        self,
        report: Callable[[Finding, History], None],
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.report = report
        self.say = say
        self.parts: dict[Part, list[Invariant]] = {}
        self.asked: Counter[str] = Counter()
        self.unjudged: Counter[str] = Counter()
        self.skipped: dict[str, str] = {}
        self.why_off: list[str] = []
        self.by_hand = ""

    def watch(self, seen: Noted) -> None:
        """Judge this engine."""
        self.unjudged = seen.unjudged
        for part in (each(seen) for each in PARTS):
            skipped = part.skipped()
            self.skipped |= {name: skipped[name] for name in part.judges if name in skipped}
            names = [name for name in part.judges if name not in skipped]
            if names:
                self.parts[part] = [INVARIANTS[name] for name in names]

    def look(self, seen: Noted) -> None:
        """Judge what an event has touched."""
        for part in list(self.parts):
            try:
                self._ask(part, seen)
            except self.passed_on:
                raise
            except MISTAKES as error:
                names = ", ".join(each.id for each in self.parts.pop(part))
                self._mistake(error, f"it judges {names} no more")

    def _ask(self, part: Part, seen: Noted) -> None:
        for step, times in part.questions():
            for invariant in self.parts[part]:
                self.asked[invariant.id] += times
                for finding in broken(seen.cluster, step, [invariant]):
                    part.found(finding)
                    self.report(finding, seen.history)

    def died(self, seen: Noted, what: str, error: Exception) -> None:
        """vLLM raised an exception."""
        self.asked["engine_survives"] += 1
        why = f"{seen.cfg.name} died: {type(error).__name__}: {error}"
        finding = Finding("engine_survives", (f"every engine must survive {what}", why))
        self.report(finding, seen.history)

    def failed(self, error: BaseException) -> None:
        """A hook of kvproof made a mistake, and kvproof watches no more."""
        self._mistake(error, "it watches this engine no more")

    def _mistake(self, error: BaseException, then: str) -> None:
        why = f"{type(error).__name__}: {error}".replace("\n", " ")
        self.why_off.append(f"{why}; {then}")
        if self.say is not None:
            self.say(f"kvproof made a mistake ({why}): {then}, and vLLM goes on.")

    def stopped(self, why: str) -> None:
        """The engine was changed by hand, and what it does from now on says nothing."""
        self.by_hand = why
