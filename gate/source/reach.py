"""What of vLLM a run reaches, by the lines that it executes in the changed files, and in which of
its steps.

A trace function for the whole run makes it take twice as long. So the changed files are imported
with a call at the beginning of each function (`probes`). Of a function in which each line stands
for the same, the call is noted. In another, a trace function is at work until it returns.
"""

import builtins
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import FrameType
from typing import Any

from kvproof.gate.difference.result import Near
from kvproof.gate.source import probes
from kvproof.gate.source.outcomes import outcome
from kvproof.gate.source.probes import Probes
from kvproof.gate.source.statements import RUNS
from kvproof.model.errors import UsageError

Line = tuple[str, int]
"""A file, and a line of it that was executed."""

CONSTRUCTORS = tuple(f".{name}{RUNS}" for name in ("__init__", "__post_init__"))
"""How the keys of functions end that make an object. What they do acts as long as the object is
used, so each later step of a cluster is near them. Plans have engines of their own: what the
constructor of one did says nothing of the next."""

Local = Callable[[FrameType, str, Any], Any]
"""The trace function of one frame."""


class Reached:
    """What runs have reached so far: keys as in `Places`. `near` has the steps in which each
    changed function executed what is changed in it, by the key of the function."""

    def __init__(self, of: Probes, of_cluster: bool = False) -> None:
        self.keys: frozenset[str] = frozenset()
        self.near: dict[str, Near] = {}
        self._of = of
        self._called: set[int] = set()
        self._lines: set[Line] = set()
        self._values: set[tuple[str, bool]] = set()
        self._seen: dict[str, Counter[str]] = {}
        self._made: set[str] = set()
        self._of_cluster = of_cluster
        self._followed = threading.local()
        self._has_lines = cache(of.has_lines)

    def note(self, abstract_steps: Iterable[str]) -> None:
        """What was executed since the last note is one step, with these abstract steps."""
        shown = ("", *{*abstract_steps})
        ran = {key for key in self._take() if key.endswith(RUNS)}
        if self._of_cluster:
            self._made.update(key for key in ran if key.endswith(CONSTRUCTORS))
        for key in ran | self._made:
            self._seen.setdefault(key, Counter()).update(shown)

    def _take(self) -> set[str]:
        """The keys of what was executed since the last time."""
        # Threads may go on meanwhile.
        called, lines, values = set(self._called), set(self._lines), set(self._values)
        self._called -= called
        self._lines -= lines
        self._values -= values
        now = {key for number in called for key in self._of.keys[number]}
        now.update(key for file, line in lines for key in self._of.places[file].get(line, ()))
        now.update(outcome(key, value) for key, value in values)
        self.keys |= now
        return now

    def begin(self) -> None:
        """From now on, what is executed is noted."""
        setattr(builtins, probes.CALLED, self._called.add)
        setattr(builtins, probes.FOLLOWED, self._follow)
        setattr(builtins, probes.VALUED, self._value)

    def end(self) -> None:
        """All runs are over."""
        probes.idle()
        self._take()
        self.near = {
            key.removesuffix(RUNS): Near(counts.pop(""), dict(counts))
            for key, counts in self._seen.items()
        }

    def _value(self, key: str, value: Any) -> Any:
        """Note whether an operand is true. What has no truth value raises its exception in vLLM."""
        with suppress(Exception):
            self._values.add((key, bool(value)))
        return value

    def _follow(self, _number: int) -> None:
        """Note the lines of the function that calls this, until it returns."""
        frame = sys._getframe(1)
        if frame.f_trace is not None:
            return
        depth = getattr(self._followed, "depth", 0)
        self._followed.depth = depth + 1
        self._lines.add((self._of.files[frame.f_code.co_filename], frame.f_lineno))
        frame.f_trace = self._local(frame, self._left)
        if not depth:
            sys.settrace(self._trace)

    def _left(self) -> None:
        """A function that was followed returns, or stops until it goes on."""
        self._followed.depth -= 1
        if not self._followed.depth:
            sys.settrace(None)

    def _trace(self, frame: FrameType, _event: str, _argument: Any) -> Local | None:
        """The trace function while a function is followed: it follows what is nested in one."""
        code = frame.f_code
        return self._local(frame, lambda: None) if self._has_lines(code) else None

    def _local(self, frame: FrameType, left: Callable[[], None]) -> Local:
        """A trace function for a frame."""
        file, lines = self._of.files[frame.f_code.co_filename], self._lines

        def local(frame: FrameType, event: str, _argument: Any) -> Local | None:
            if event == "return":
                frame.f_trace = None
                left()
                return None
            if event == "line":
                lines.add((file, frame.f_lineno))
            return local

        return local


@contextmanager
def reached(of: Probes, of_cluster: bool = False) -> Iterator[Reached]:
    """Record what is reached in the block in the files that were imported with these probes. All of
    the block may be runs of one cluster. What was reached is known after the block. Raises
    UsageError where a debugger is at work."""
    if sys.gettrace() is not None:
        raise UsageError(
            "A trace function is at work, so the lines that a run executes cannot be recorded. "
            "Use a run without a debugger."
        )
    found = Reached(of, of_cluster)
    found.begin()
    try:
        yield found
    finally:
        found.end()
