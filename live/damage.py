"""Damage: mistakes of vLLM without an exception, after which it cannot be driven any further.

kvproof raises one of these exceptions for them, which counts as the death of an engine. `place` is
in vLLM."""

from traceback import FrameSummary
from types import CodeType


class Damage(Exception):
    """The base class of these exceptions."""

    def __init__(self, code: CodeType, line: int, message: str) -> None:
        self.place = FrameSummary(code.co_filename, line, code.co_name)
        super().__init__(message)


class DoesNotEnd(Damage):
    """A function does not return."""


class NoSuchBlock(Damage):
    """A function returned a block that the pool does not have: the end of a broken free queue."""
