"""All watched schedulers of this process, and what was found of them."""

import functools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.util import Finalize
from typing import Any

from kvproof.invariants.registry import severity_of
from kvproof.live.watch.history import History
from kvproof.live.watch.hooks import MISTAKES
from kvproof.live.watch.judge import ALL, Judge, Violation
from kvproof.live.watch.observer import Observer
from kvproof.live.watch.shape import Unknown
from kvproof.model.finding import Finding

SHOWN_MAX = 3
"""How often a finding of one invariant is printed; the rest is counted."""

SHOWN = 8
"""The number of events that are shown with a finding."""


class Watching:
    """The watched schedulers. `found` has the findings since the last `take`, at most `KEPT`.
    `tested` means that they are those of a test suite."""

    KEPT = 1000

    def __init__(self, mode: str, say: Callable[[str], None]) -> None:
        self.mode = mode
        self.say = say
        self.judges: list[Judge] = []
        self.asked: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.found: list[str] = []
        self.unknown: Counter[str] = Counter()
        self._process: int | None = None
        self.tested = False

    def install(self) -> None:
        """Watch each scheduler that is built from now on."""
        from vllm.v1.core.sched.scheduler import Scheduler

        built = Scheduler.__init__
        watching = self

        @functools.wraps(built)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            built(self, *args, **kwargs)
            watching.attach(self)

        Scheduler.__init__ = init

    def attach(self, scheduler: Any) -> None:
        """Watch a scheduler. What cannot be watched runs as without kvproof."""
        if self._process != os.getpid():  # the first one here: others are built in other processes
            self._process = os.getpid()
            Finalize(None, self._end, exitpriority=0)  # forked engine cores end without atexit
        judge = Judge(self.report)
        try:
            Observer(scheduler, judge, tested=self.tested)
        except Unknown as unknown:
            self._not_watched(str(unknown))
        except MISTAKES as error:
            self._not_watched(f"kvproof does not fit ({type(error).__name__}: {error})")
        else:
            self.judges.append(judge)

    def _end(self) -> None:
        """The process ends."""
        for line in self.summary():
            self.say(line)

    def _not_watched(self, why: str) -> None:
        if not self.unknown[why]:
            self.say(f"an engine is not watched: {why}")
        self.unknown[why] += 1

    def report(self, finding: Finding, history: History) -> None:
        """An invariant does not hold."""
        self.counts[finding.invariant] += 1
        text = "\n".join((words(finding), *(f"    {line}" for line in history.lines(SHOWN))))
        if len(self.found) < self.KEPT:
            self.found.append(text)
        if self.mode == "raise":
            raise Violation(text)
        if self.mode == "warn" and self.counts[finding.invariant] <= SHOWN_MAX:
            self.say(text)

    def take(self) -> list[str]:
        """The findings since the last call."""
        taken, self.found = self.found, []
        return taken

    def summary(self) -> Iterator[str]:
        """What was judged, what was found, and what was not judged and why."""
        asked: Counter[str] = Counter()
        for judge in self.judges:
            asked.update(judge.asked)
        for why, times in Counter(judge.by_hand for judge in self.judges).items():
            if why:
                yield f"{times} engines were not watched any further: {why}"
        for why in {judge.why_off for judge in self.judges if judge.why_off}:
            yield f"UNKNOWN: kvproof made a mistake, and watched no more ({why})"
        for why, times in self.unknown.items():
            yield f"UNKNOWN: {times} engines were not watched: {why}"
        for name, times in self.counts.most_common():
            yield f"VIOLATED: {name}, {times} times"
        for name, why in {pair for judge in self.judges for pair in judge.skipped.items()}:
            yield f"not judged on every engine: {name}, because {why}"
        judged = [name for name in ALL if asked[name]]
        if not judged:
            yield "UNKNOWN: nothing was judged"
        else:
            yield f"judged: {', '.join(f'{name} {asked[name]:,}' for name in judged)}"
            if silent := [name for name in ALL if not asked[name]]:
                yield f"had nothing to judge: {', '.join(silent)}"


def words(finding: Finding) -> str:
    """A finding in a line."""
    severity = severity_of(finding)
    grave = f" ({severity.words})" if severity is not None else ""
    return f"VIOLATED {finding.invariant}{grave}: {finding.sentence}"
