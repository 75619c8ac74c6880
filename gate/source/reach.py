"""What of vLLM a run reaches, by the lines that it executes in the changed files, and in which of
its steps.

A trace function for the whole run makes it take twice as long. So the changed files are imported
with a call at the beginning of each function (`probes`). Of a function in which each line stands
for the same, the call is noted. In another, a trace function is at work until it returns.
"""

import builtins
import dis
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType
from typing import Any

from kvproof.gate.difference.result import Near
from kvproof.gate.source import probes
from kvproof.gate.source.outcomes import MARK, place_of
from kvproof.gate.source.probes import Probes
from kvproof.gate.source.statements import RUNS
from kvproof.model.errors import UsageError

Pair = tuple[str, int, int]
"""A file, and two lines that were executed one after the other; the first is negative where a
function begins, and the second where it ends."""

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
        self._pairs: set[Pair] = set()
        self._seen: dict[str, Counter[str]] = {}
        self._made: set[str] = set()
        self._of_cluster = of_cluster
        self._followed = threading.local()
        self._keys_of = cache(self._keys_between)
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
        called, pairs = set(self._called), set(self._pairs)  # threads may go on meanwhile
        self._called -= called
        self._pairs -= pairs
        now = {key for number in called for key in self._of.keys[number]}
        now.update(key for pair in pairs for key in self._keys_of(pair))
        self.keys |= now
        return now

    def _keys_between(self, pair: Pair) -> tuple[str, ...]:
        """What a run reaches that goes from one line to another: what the second stands for, and
        the outcome."""
        file, line, to = pair
        of_file = self._of.places[file]
        here = (key for key in of_file.get(to, ()) if MARK not in key)
        ends = (key for key in of_file.get(line, ()) if MARK in key and place_of(key)[1] == to)
        return (*here, *ends)

    def begin(self) -> None:
        """From now on, what is executed is noted."""
        setattr(builtins, probes.CALLED, self._called.add)
        setattr(builtins, probes.FOLLOWED, self._follow)

    def end(self) -> None:
        """All runs are over."""
        probes.idle()
        self._take()
        self.near = {
            key.removesuffix(RUNS): Near(counts.pop(""), dict(counts))
            for key, counts in self._seen.items()
        }

    def _follow(self, _number: int) -> None:
        """Note the lines of the function that calls this, until it returns."""
        frame = sys._getframe(1)
        if frame.f_trace is not None:
            return
        depth = getattr(self._followed, "depth", 0)
        self._followed.depth = depth + 1
        frame.f_trace = self._local(frame, frame.f_lineno, self._left)
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
        return self._local(frame, 0, lambda: None) if self._has_lines(code) else None

    def _local(self, frame: FrameType, line: int, left: Callable[[], None]) -> Local:
        """A trace function for a frame that is at this line, or before its first one (0)."""
        file, first = self._of.files[frame.f_code.co_filename], -frame.f_code.co_firstlineno
        pairs, last = self._pairs, line or first
        if line:
            pairs.add((file, first, line))

        def local(frame: FrameType, event: str, _argument: Any) -> Local | None:
            nonlocal last
            if event == "return":
                if _returns(frame.f_code, frame.f_lasti):
                    pairs.add((file, last, first))
                frame.f_trace = None
                left()
                return None
            if event == "line":
                pairs.add((file, last, frame.f_lineno))
                last = frame.f_lineno
            return local

        return local


def _returns(code: CodeType, at: int) -> bool:
    """Whether a function ends here, not with an exception, nor to go on later."""
    name = dis.opname[code.co_code[at]]
    return name.startswith("RETURN") and name != "RETURN_GENERATOR"


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
