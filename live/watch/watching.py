"""All watched schedulers of this process, and what was found of them."""

import functools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.util import Finalize
from typing import Any
from weakref import WeakSet

from kvproof.invariants.registry import severity_of
from kvproof.live.watch.dumps import Dumps
from kvproof.live.watch.fits import gap
from kvproof.live.watch.groups import Unknown
from kvproof.live.watch.history import History
from kvproof.live.watch.hooks import MISTAKES
from kvproof.live.watch.judge import Judge, Violation
from kvproof.live.watch.observer import Observer
from kvproof.live.watch.record import last_words
from kvproof.live.watch.summary import Summary
from kvproof.model.finding import Finding
from kvproof.model.severity import FAIL_ON

SHOWN_MAX = 3
"""How often a finding of one invariant is printed; the rest is counted."""

SHOWN = 8
"""The number of events that are shown with a finding."""


class Watching:
    """The watched schedulers. `found` has the findings since the last `take`, at most `KEPT`, that
    are as grave as `FAIL_ON` or graver: what costs a user less is counted and printed, and stops
    no server and no test.
    `tested` means that they are those of a test suite."""

    KEPT = 1000

    def __init__(self, mode: str, say: Callable[[str], None]) -> None:
        self.mode = mode
        self.say = say
        self.dumps = Dumps(say)
        self.judges: list[Judge] = []
        self.observers: WeakSet[Observer] = WeakSet()
        self.counts: Counter[str] = Counter()
        self.found: list[tuple[str, str]] = []
        self.unknown: Counter[str] = Counter()
        self.gaps: dict[type, str] = {}
        self._process: int | None = None
        self._asked = False
        self.tested = False
        self.observer = Observer

    def watch_bytes(self) -> None:
        """Judge the bytes of blocks, too."""
        from kvproof.live.watch.bytes.observer import ByteObserver

        self.observer = ByteObserver

    def install(self) -> None:
        """Watch each scheduler that is built from now on."""
        from vllm.v1.core.sched.scheduler import Scheduler

        built = Scheduler.__init__
        watching = self

        @functools.wraps(built)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            built(self, *args, **kwargs)
            try:
                watching.attach(self)
            except MISTAKES as error:
                watching.does_not_fit(error)

        Scheduler.__init__ = init
        self.dumps.listen()

    def attach(self, scheduler: Any) -> None:
        """Watch a scheduler. What cannot be watched runs as without kvproof."""
        if self._process != os.getpid():  # the first one here: others are built in other processes
            self._process, self._asked = os.getpid(), False
            Finalize(None, self._end, exitpriority=0)  # forked engine cores end without atexit
        judge = Judge(self.report, self.say)
        try:
            self._check(scheduler, type(scheduler))
            observer = self.observer(scheduler, judge, tested=self.tested)
        except Unknown as unknown:
            self._not_watched(str(unknown))
        else:
            self.judges.append(judge)
            self.observers.add(observer)
            self.dumps.add(observer.noted, judge)

    def does_not_fit(self, error: BaseException) -> None:
        """A mistake of kvproof, where it should watch a scheduler."""
        self._not_watched(f"kvproof does not fit ({type(error).__name__}: {error})")

    def _end(self) -> None:
        """The process ends. The summary is printed where nobody has asked for it."""
        try:
            for line in () if self._asked else self.summary():
                self.say(line)
            for line in self.dumps.at_exit():
                self.say(line)
        except MISTAKES as error:
            self.say(
                f"UNKNOWN: kvproof made a mistake at the end ({type(error).__name__}: {error})"
            )

    def _check(self, scheduler: Any, kind: type) -> None:
        """Raise Unknown where this vLLM lacks something that is needed to watch it."""
        if kind not in self.gaps:
            self.gaps[kind] = gap(scheduler)
        if self.gaps[kind]:
            raise Unknown(self.gaps[kind])

    def _not_watched(self, why: str) -> None:
        if not self.unknown[why]:
            self.say(f"an engine is not watched: {why}")
        self.unknown[why] += 1

    def audit(self) -> None:
        """Judge all requests and all blocks of each engine now, also those that no event touches.
        To be called between the steps, by the thread that runs them."""
        for observer in list(self.observers):
            observer.audit()

    def report(self, finding: Finding, history: History) -> None:
        """An invariant does not hold."""
        self.counts[finding.invariant] += 1
        kept = self.dumps.violation(finding, history)
        lines = (*_last_words(history), kept)
        text = "\n".join((words(finding), *(f"    {line}" for line in lines)))
        severity = severity_of(finding)
        grave = severity is None or severity <= FAIL_ON
        if grave and len(self.found) < self.KEPT:
            self.found.append((finding.invariant, text))
        if grave and self.mode == "raise":
            raise Violation(text)
        if self.mode != "record" and self.counts[finding.invariant] <= SHOWN_MAX:
            self.say(text)

    def take(self) -> list[tuple[str, str]]:
        """The findings since the last call: the invariant of each, and the report."""
        taken, self.found = self.found, []
        return taken

    def gathered(self) -> Summary:
        """What was judged and found on all engines."""
        self._asked = True
        found = Summary()
        found.watched["engines"] = len(self.judges)
        found.found.update(self.counts)
        found.not_watched.update(self.unknown)
        for judge in self.judges:
            found.asked.update(judge.asked)
            found.unjudged.update(judge.unjudged)
            found.by_hand.update([judge.by_hand] if judge.by_hand else ())
            found.mistakes.update(judge.why_off)
            found.no_bytes.update([judge.no_bytes] if judge.no_bytes else ())
            found.skipped.update(f"{name}, because {why}" for name, why in judge.skipped.items())
        return found

    def summary(self) -> Iterator[str]:
        """What was judged, what was found, and what was not judged and why."""
        yield from self.gathered().lines()


def _last_words(history: History) -> tuple[str, ...]:
    """The last events. A mistake here hides no finding."""
    try:
        return tuple(last_words(history, SHOWN))
    except MISTAKES as error:
        return (f"no events: kvproof made a mistake ({type(error).__name__}: {error})",)


def words(finding: Finding) -> str:
    """A finding in a line."""
    severity = severity_of(finding)
    grave = f" ({severity.words})" if severity is not None else ""
    return f"VIOLATED {finding.invariant}{grave}: {finding.sentence}"
