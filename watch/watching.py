"""This module watches all schedulers of this process, and collects what is found on them."""

import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import WeakSet

from kvproof.invariants.registry import severity_of
from kvproof.live.contract.lookup import Missing, first_place
from kvproof.live.contract.table import things_of
from kvproof.live.observer.hooks import MISTAKES, around
from kvproof.model.errors import UsageError
from kvproof.model.finding import Finding
from kvproof.model.severity import FAIL_ON
from kvproof.watch.dumps import Dumps
from kvproof.watch.history import History
from kvproof.watch.judge import Judge, Violation
from kvproof.watch.observer import Observer
from kvproof.watch.record import last_words
from kvproof.watch.run import WatchedRun, at_end
from kvproof.watch.shape import Unknown
from kvproof.watch.shown import NOT_JUDGED
from kvproof.watch.summary import Summary

SHOWN_MAX = 3
"""How often a finding of one check is printed; the rest is counted."""

SHOWN = 8
"""The number of events that are shown with a finding."""

LOOK_S = 1.0
"""Between two looks at whether an engine core was killed, in seconds."""


class Watching:
    """Watch schedulers, and collect what is found on them. `found` has the findings since the last
    `take`, at most `KEPT`, that are as grave as `FAIL_ON` or graver: what costs a user less is
    counted and printed, and stops no server and no test. `tested` means that they are those of a
    test suite."""

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
        self._process = os.getpid()
        self._dump_requested = False
        self.run: WatchedRun | None = None
        self.steps = 0
        self._printed: set[str] = set()
        self._looked_after: WatchedRun | None = None
        self.tested = False
        self.observer = Observer

    def watch_bytes(self) -> None:
        """Judge the bytes of blocks too."""
        from kvproof.watch.bytes.observer import ByteObserver

        self.observer = ByteObserver

    def install(self) -> None:
        """Watch each scheduler that is built from now on."""
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.engine.core_client import MPClient

        def built(_: None, args: tuple[Any, ...], __: object) -> None:
            try:
                self.attach(args[0])
            except MISTAKES as error:
                self.does_not_fit(error)

        around(Scheduler, "__init__", after=built)
        # It may take longer than the waiting process allows.
        around(EngineCore, "shutdown", lambda *_: self.last_word())
        # With it, the engine cores are started.
        around(MPClient, "__init__", after=lambda *_: self.wait_for_cores())
        self.dumps.listen()
        self._joins()

    def _joins(self, *, forked: bool = False) -> None:
        """Join the run that this process belongs to, or begin one."""
        self.run = WatchedRun(forked=forked)
        if self.run.broken and self.run.parent:
            self.say(f"what is judged cannot be kept: {self.run.broken}")
        at_end(self._end, self, last=self.run.parent)

    def wait_for_cores(self) -> None:
        """Look after the engine cores that this process has started and will wait for, all of them
        in one thread."""
        run = self.run
        if run is None or run.broken or not run.parent or run is self._looked_after:
            return
        self._looked_after = run
        threading.Thread(target=self._look_after_cores, args=(run,), daemon=True).start()

    def _look_after_cores(self, run: WatchedRun) -> None:
        """Say at once that an engine core was killed: a call of vLLM may wait for it for
        minutes."""
        shown = set[int]()
        while run is self.run and not run.is_reported:
            time.sleep(LOOK_S)
            for part in run.killed():
                if part.saved.pid not in shown and not self.tested:
                    self.say(f"{part.lost}. A call that waits for it may not return")
                shown.add(part.saved.pid)

    def _is_forked(self) -> None:
        """Begin anew in a process that was forked from the one that was switched on. The other one
        prints what it has judged."""
        self._process, self._dump_requested = os.getpid(), False
        self.judges, self.found = [], []
        self.observers, self.dumps = WeakSet(), Dumps(self.say)
        self.counts, self.unknown = Counter(), Counter()
        if self.run is not None:
            self._joins(forked=True)

    def attach(self, scheduler: Any) -> None:
        """Watch a scheduler. What cannot be watched runs as without kvproof."""
        if self._process != os.getpid():
            self._is_forked()
        judge = Judge(self.report, self.say, self._judged)
        try:
            self._check(scheduler, type(scheduler))
            observer = self.observer(scheduler, judge, tested=self.tested)
        except Unknown as unknown:
            self._not_watched(str(unknown))
        else:
            self.judges.append(judge)
            self.observers.add(observer)
            self.dumps.add(observer.notes, judge)
            if self.run is not None and not self.tested:
                self.say(self._begins(judge))
        self._save()

    def _begins(self, judge: Judge) -> str:
        """Return the line that says that an engine is watched, and what is not judged on it."""
        reasons: dict[str, list[str]] = {}
        for name, why in judge.skipped.items():
            reasons.setdefault(why, []).append(name)
        left_out = [f"{', '.join(names)} ({why})" for why, names in reasons.items()]
        left_out.append(f"and {len(NOT_JUDGED)} that no watcher judges")
        who = f"engine {len(self.judges)} of {multiprocessing.current_process().name}"
        return (
            f"watching {who}, pid {os.getpid()}, {self.mode}. "
            f"Not judged on it: {'; '.join(left_out)}"
        )

    def _judged(self, is_step: bool, idle: bool) -> None:
        """Note that an event of an engine was judged. Between the beginning of a step and its end
        nothing is saved: all of a step is counted then, or nothing."""
        if self.run is None:
            return
        if is_step:
            self.steps += 1
            self.run.step(self.steps)
        elif self.run.is_due(idle=idle):
            self._save()

    def _save(self, *, ended: bool = False) -> None:
        """Keep what was judged so far."""
        if self.run is None:
            return
        own = self._own()
        self.steps = own.watched["steps"]
        try:
            self.run.save(own.plain(), ended=ended)
        except UsageError as error:
            self.say(f"what is judged is not kept on disk any more: {error}")

    def does_not_fit(self, error: BaseException) -> None:
        """Note a mistake of kvproof at the moment when it should begin to watch a scheduler."""
        self._not_watched(f"kvproof does not fit ({type(error).__name__}: {error})")

    def _end(self) -> None:
        """Print the summary at the end of the process. Only the parent of the run prints it, and
        only if nobody has asked for it before."""
        if self._process != os.getpid() or self.run is None:
            return
        if not (self.run.parent or self.judges or self.unknown):  # such as a worker
            return
        dump_requested, printed = self._dump_requested, self.dumps.lines()
        self.last_word()
        try:
            if dump_requested:
                for line in self.dumps.lines():
                    if line not in printed:
                        self.say(line)
            elif self.run.prints_summary:
                for line in self.summary():
                    self.say(line)
            if self.run.parent:
                self.run.mark_reported()
        except MISTAKES as error:
            self._failed(error)

    def last_word(self) -> None:
        """Keep all that is known of this process, which ends."""
        try:
            self.dumps.at_exit()
            self._save(ended=True)
        except MISTAKES as error:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        why = f"{type(error).__name__}: {error}"
        self.say(f"UNKNOWN: kvproof made a mistake at the end ({why})")

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

    def report(self, finding: Finding, history: History) -> None:
        """Count and print a check that does not hold, and write a record."""
        self.counts[finding.invariant] += 1
        kept = self.dumps.violation(finding, history)
        sentence = f"{words(finding)}; {kept}"
        text = "\n".join((sentence, *(f"    {line}" for line in _last_words(history))))
        severity = severity_of(finding)
        grave = severity is None or severity <= FAIL_ON
        if grave and len(self.found) < self.KEPT:
            self.found.append((finding.invariant, text))
        times = self.counts[finding.invariant]
        if times == 1:
            self._save()
        shown_max = 1 if self.mode == "record" else SHOWN_MAX
        if not self.tested and times <= shown_max and sentence not in self._printed:
            self._printed.add(sentence)
            self.say(sentence if self.mode == "record" else text)
        if grave and self.mode == "raise":
            raise Violation(sentence)

    def take(self) -> list[tuple[str, str]]:
        """Return the findings since the last call: the invariant of each, and the report."""
        taken, self.found = self.found, []
        return taken

    def gathered(self) -> Summary:
        """Return what was judged and found on all engines, also on those of the processes that this
        one has started."""
        self._dump_requested = True
        found = self._own()
        for part in self.run.others() if self.run is not None and self.run.parent else ():
            found.add(part.numbers)
            found.lost.update([part.lost] if part.lost else ())
        return found

    def _own(self) -> Summary:
        """Return what was judged and found on the engines of this process."""
        found = Summary()
        found.watched.update(
            engines=len(self.judges), steps=sum(judge.steps for judge in self.judges)
        )
        found.records.update(self.dumps.lines())
        found.found.update(self.counts)
        found.not_watched.update(self.unknown)
        for judge in self.judges:
            found.times_judged.update(judge.times_judged)
            found.unjudged.update(judge.unjudged)
            found.trusted.update(judge.trusted)
            found.shared.update(judge.shared)
            found.by_hand.update([judge.by_hand] if judge.by_hand else ())
            found.mistakes.update(judge.why_off)
            found.no_bytes.update([judge.no_bytes] if judge.no_bytes else ())
            found.skipped.update(f"{name}, because {why}" for name, why in judge.skipped.items())
        return found

    def summary(self) -> Iterator[str]:
        """Return the lines of the summary: what was judged, what was found, and what was not judged
        and why."""
        yield from self.gathered().lines()


Objects = Mapping[str, Callable[[], Any]]


def gap(scheduler: Any) -> str:
    """Name the first entry of the contract that this engine lacks, in a sentence. The answer is
    empty if it has all."""
    objects: Objects = {
        "Scheduler": lambda: scheduler,
        "KVCacheManager": lambda: scheduler.kv_cache_manager,
        "KVCacheCoordinator": lambda: scheduler.kv_cache_manager.coordinator,
        "SingleTypeKVCacheManager": lambda: (
            scheduler.kv_cache_manager.coordinator.single_type_managers[0]
        ),
        "BlockPool": lambda: scheduler.kv_cache_manager.block_pool,
        "BlockHashToBlockMap": lambda: (
            scheduler.kv_cache_manager.block_pool.cached_block_hash_to_block
        ),
        "KVCacheBlock": lambda: scheduler.kv_cache_manager.block_pool.blocks[0],
    }

    def found(label: str) -> Any:
        try:
            return objects[label]()
        except (AttributeError, LookupError):
            raise Missing from None

    for entry in things_of("watching"):
        if first_place(entry.places, found)[0] is None:
            lacks = f"this vLLM has no {entry.name}, needed to watch it ({entry.used_for})"
            return f"{lacks}. Use kvproof doctor to see what it lacks"
    return ""


def _last_words(history: History) -> tuple[str, ...]:
    """Return the last events as lines. A mistake here hides no finding."""
    try:
        return tuple(last_words(history, SHOWN))
    except MISTAKES as error:
        return (f"no events: kvproof made a mistake ({type(error).__name__}: {error})",)


def words(finding: Finding) -> str:
    """Return a finding as a line."""
    severity = severity_of(finding)
    grave = f" ({severity.words})" if severity is not None else ""
    return f"VIOLATED {finding.invariant}{grave}: {finding.sentence}"
