"""Converts records of older trace files to the newest schema, with one function for each step.

1 to 2: choices record the blocks that they took and freed. Choices of schema 1 have no blocks: a
machine that replays them chooses the blocks by its own policy.
2 to 3: names of fields, events, options, phases, reverse transfers, faults and invariants (see
`renamed`).
"""

from collections.abc import Callable, Iterable
from typing import Any

from kvproof.model.errors import UsageError
from kvproof.model.events import BLOCKS
from kvproof.model.files.reading import printable
from kvproof.model.traces import renamed

Record = dict[str, Any]


def upgraded(record: Record, schema: int) -> Record:
    """A record of a file of this schema, as one of the newest."""
    for step in STEPS[schema - 1 :]:
        record = step(record)
    return record


def _from_1(record: Record) -> Record:
    """Schema 1 has no blocks in choices. Raises UsageError where a choice has some."""
    for choice in _choices(record):
        found = [name for name in BLOCKS if name in choice]
        if found:
            raise UsageError(
                f"A choice has the field {found[0]}, which schema 1 does not know. "
                "Use schema 2 in the first line."
            )
    return record


def _from_2(record: Record) -> Record:
    """Schema 2 has other names (see `renamed`)."""
    record = dict(record)
    for choice in _choices(record):
        if "type" in choice:
            choice["type"] = renamed.choice(choice["type"])
    if "event" in record:
        record["event"] = renamed.event(record["event"])
    if isinstance(record.get("changed"), dict):
        record["changed"] = _each_once(
            (renamed.pointer(at), renamed.value(at, value))
            for at, value in record["changed"].items()
        )
    if isinstance(record.get("removed"), list):
        record["removed"] = [renamed.pointer(at) for at in record["removed"]]
    if isinstance(record.get("config"), dict):
        record["config"] = _each_once(
            (renamed.OPTIONS.get(k, k), v) for k, v in record["config"].items()
        )
    if isinstance(record.get("faults"), list):
        record["faults"] = [renamed.id_of(fault) for fault in record["faults"]]
    if isinstance(record.get("finding"), dict):
        record["finding"] = renamed.finding(record["finding"])
    return record


def _each_once(items: Iterable[tuple[str, Any]]) -> Record:
    """The items as a record. Raises UsageError where an old and a new name are the same."""
    made: Record = {}
    for name, value in items:
        if name in made:
            raise UsageError(
                f"The field {printable(name)} is there twice, once under an older name. "
                "Use each field once."
            )
        made[name] = value
    return made


def _choices(record: Record) -> list[Record]:
    """The choices of a record's event; empty where the record has no valid event."""
    event = record.get("event")
    chose = event.get("chose") if isinstance(event, dict) else None
    return [c for c in chose if isinstance(c, dict)] if isinstance(chose, list) else []


STEPS: tuple[Callable[[Record], Record], ...] = (_from_1, _from_2)
