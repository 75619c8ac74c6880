"""The death of an engine: an exception of vLLM, as data."""

import linecache
from traceback import FrameSummary

from kvproof.live.damage import Damage
from kvproof.model.state import Death


def death_of(error: Exception, place: FrameSummary) -> Death:
    """The death by an exception that was raised at this place. Its statement is the source from
    its first line to its last one; empty where the source is not there, or where the place is that
    of an interruption."""
    first = place.lineno or 0
    lines = range(first, (place.end_lineno or first) + 1) if not isinstance(error, Damage) else ()
    source = (linecache.getline(place.filename, line).strip() for line in lines)
    return Death(type(error).__name__, place.name, str(error), " ".join(filter(None, source)))
