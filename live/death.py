"""The death of an engine: an exception of vLLM, as data."""

import linecache
import traceback

from kvproof.live.damage import Damage
from kvproof.live.fake import FakeParams
from kvproof.model.state import Death


def place(error: BaseException) -> traceback.FrameSummary:
    """Where an exception was raised. A KeyError of a router's parameters belongs to its reader."""
    if isinstance(error, Damage):
        return error.place
    frames = traceback.extract_tb(error.__traceback__)
    read = isinstance(error, KeyError) and frames[-1].name == FakeParams.__missing__.__name__
    return frames[-2 if read else -1]


def death_of(error: Exception) -> Death:
    """The death of an engine by an exception. Its statement is the source text of the statement
    that raised it; empty where the source is missing, or where the engine was interrupted there."""
    at = place(error)
    first = at.lineno or 0
    lines = range(first, (at.end_lineno or first) + 1) if not isinstance(error, Damage) else ()
    source = (linecache.getline(at.filename, line).strip() for line in lines)
    return Death(type(error).__name__, at.name, str(error), " ".join(filter(None, source)))
