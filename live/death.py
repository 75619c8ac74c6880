"""The death of an engine: an exception of vLLM, as data. And damage: mistakes of vLLM without an
exception, after which it cannot be driven any further. kvproof raises an exception for them, which
counts as the death of an engine; its `place` is in vLLM."""

import linecache
from traceback import FrameSummary
from types import CodeType

from kvproof.live.fake import FakeParams
from kvproof.model.raised import places
from kvproof.model.state import Death


def place(error: BaseException) -> FrameSummary:
    """Where an exception was raised. A KeyError of a router's parameters belongs to its reader."""
    if isinstance(error, Damage):
        return error.place
    passed = places(error)
    read = isinstance(error, KeyError) and passed[-1].name == FakeParams.__missing__.__name__
    return passed[-2 if read else -1]


def death_of(error: Exception) -> Death:
    """The death of an engine by an exception. Its statement is the source text of the statement
    that raised it; empty where the source is missing, or where the engine was interrupted there."""
    at = place(error)
    first = at.lineno or 0
    lines = range(first, (at.end_lineno or first) + 1) if not isinstance(error, Damage) else ()
    source = (linecache.getline(at.filename, line).strip() for line in lines)
    return Death(type(error).__name__, at.name, str(error), " ".join(filter(None, source)))


class Damage(Exception):
    """The base class of these exceptions."""

    def __init__(self, code: CodeType, line: int, message: str) -> None:
        self.place = FrameSummary(code.co_filename, line, code.co_name)
        super().__init__(message)


class DoesNotEnd(Damage):
    """A function does not return."""


class NoSuchBlock(Damage):
    """A function returned a block that the pool does not have: the end of a broken free queue."""
