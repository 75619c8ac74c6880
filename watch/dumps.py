"""This module writes the record files of this process.

A record is written at the first violation of each invariant on each engine, when somebody asks for
it, and at the end of a process with a violation. A mistake here is a sentence, never an exception.
"""

import itertools
import os
import signal
import threading
import weakref
from collections.abc import Callable
from typing import NamedTuple

from kvproof.live.observer.hooks import MISTAKES
from kvproof.model.errors import UsageError
from kvproof.model.finding import Finding
from kvproof.model.records.lines import Why
from kvproof.model.records.record import write_in
from kvproof.watch.history import History
from kvproof.watch.judge import Judge
from kvproof.watch.notes import EngineNotes
from kvproof.watch.record import record_of
from kvproof.watch.run import records

FILES_MAX = 8
"""The largest number of files that a process writes by itself. What a user asks for is not
counted."""

SIGNAL = "SIGUSR2"
"""The signal that asks for a record of each engine. vLLM uses it for nothing."""


class WatchedEngine(NamedTuple):
    """A watched engine: what was noted of it, who judges it, and its number in this process. The
    references are weak, so that they keep no engine alive."""

    notes: "weakref.ref[EngineNotes]"
    judge: "weakref.ref[Judge]"
    number: int


class Dumps:
    """Write the record files of this process. `say` prints a line for the user."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self._numbers = itertools.count(1)
        self._engines: weakref.WeakKeyDictionary[History, WatchedEngine] = (
            weakref.WeakKeyDictionary()
        )
        self._violated: dict[int, EngineNotes] = {}
        self._written: dict[tuple[int, str], str] = {}
        self._last: dict[int, int] = {}

    def add(self, notes: EngineNotes, judge: Judge) -> None:
        """Note that one more engine is watched."""
        engine = WatchedEngine(weakref.ref(notes), weakref.ref(judge), next(self._numbers))
        self._engines[notes.history] = engine

    def violation(self, finding: Finding, history: History) -> str:
        """Write a record because a check does not hold. Return the line about the file with the
        record."""
        history.found(finding)
        engine = self._engines.get(history)
        notes = None if engine is None else engine.notes()
        if engine is None or notes is None:
            return "no record: the engine is not known"
        kind = engine.number, finding.invariant
        if kind not in self._written:
            if len(self._written) >= FILES_MAX:
                return f"no record: this process has written {FILES_MAX} of them"
            self._violated[engine.number] = notes
            self._written[kind] = self._write(engine, finding.invariant, "violation")
        return self._written[kind]

    def on_request(self) -> list[str]:
        """Write a record of each engine. Return a line about each file."""
        engines = list(self._engines.values())
        return [self._write(engine, "request", "request") for engine in engines if engine.notes()]

    def at_exit(self) -> None:
        """Write a record of each engine that had a violation and went on after its last record."""
        for number, notes in self._violated.items():
            engine = self._engines.get(notes.history)
            if engine is not None and self._last.get(number) != notes.history.events_ended:
                self._written[number, "exit"] = self._write(engine, "exit", "exit")

    def lines(self) -> list[str]:
        """Return a line about each file that was written without a request of the user."""
        return list(dict.fromkeys(self._written.values()))

    def _write(self, engine: WatchedEngine, kind: str, why: Why) -> str:
        notes, judge = engine.notes(), engine.judge()
        if notes is None:
            return "no record: the engine is gone"
        stopped = "" if judge is None else judge.by_hand or "; ".join(judge.why_off)
        stem = f"{kind}-pid{os.getpid()}-engine{engine.number}"
        try:
            path = write_in(records(), stem, record_of(notes, why, stopped))
        except UsageError as error:
            return f"no record: {error}"
        except MISTAKES as error:
            return f"no record: kvproof made a mistake ({type(error).__name__}: {error})"
        self._last[engine.number] = notes.history.events_ended
        return f"record: {path}"

    def listen(self) -> None:
        """Write records at the signal, where nobody else handles it. Only the main thread of a
        process can set this up."""
        number = getattr(signal, SIGNAL, None)
        if number is None or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda *_: self._note_signal())

    def _note_signal(self) -> None:
        for line in self.on_request() or ["no record: no engine is watched in this process"]:
            self.say(line)
