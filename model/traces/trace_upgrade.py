"""Records of older trace files as those of the newest schema, one function for each step.

1 to 2: choices say which blocks they took and freed. Those of schema 1 do not, and stay unsaid: a
machine that replays them chooses its blocks by its own policy.
"""

from collections.abc import Callable
from typing import Any

from kvproof.model.errors import UsageError
from kvproof.model.events import BLOCKS

Record = dict[str, Any]


def upgraded(record: Record, schema: int) -> Record:
    """A record of a file of this schema, as one of the newest."""
    for step in STEPS[schema - 1 :]:
        record = step(record)
    return record


def _from_1(record: Record) -> Record:
    """Schema 1 knew no blocks in choices: they would be a mistake there, and are not taken over."""
    event = record.get("event")
    chose = event.get("chose") if isinstance(event, dict) else None
    for choice in chose if isinstance(chose, list) else ():
        said = [name for name in BLOCKS if isinstance(choice, dict) and name in choice]
        if said:
            raise UsageError(
                f"A choice says {said[0]}, which schema 1 does not know. "
                "Write schema 2 in the first line."
            )
    return record


STEPS: tuple[Callable[[Record], Record], ...] = (_from_1,)
