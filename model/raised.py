"""Where an exception was raised, and through which functions it went: the one reader of tracebacks.
Whose exception it was is decided by `live/blame.py` alone. Who asks here names a place."""

import traceback
from collections.abc import Callable
from traceback import FrameSummary
from types import FrameType


def frames(error: BaseException) -> list[FrameType]:
    """The calls that an exception went through, the innermost one last."""
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def places(error: BaseException) -> list[FrameSummary]:
    """The lines that an exception went through, the innermost one last."""
    return [*traceback.extract_tb(error.__traceback__)]


def last_place(error: BaseException, belongs: Callable[[str], bool]) -> FrameSummary | None:
    """The innermost line of these files that an exception went through."""
    return next((each for each in reversed(places(error)) if belongs(each.filename)), None)
