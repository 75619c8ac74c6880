"""What vLLM does wrong without an exception, and after which it cannot be driven any further.

Such an exception of kvproof stands for the death of an engine. `place` is in vLLM."""

from traceback import FrameSummary
from types import CodeType


class Damage(Exception):
    """The base of these exceptions."""

    def __init__(self, code: CodeType, line: int, message: str) -> None:
        self.place = FrameSummary(code.co_filename, line, code.co_name)
        super().__init__(message)


class DoesNotEnd(Damage):
    """A function does not return."""


class NoSuchBlock(Damage):
    """A function returns a block that the pool does not have: the end of a broken free queue."""
