"""Converts records of older trace files to the newest schema, with one function for each step.

1 to 2: choices record the blocks that they took and freed. Choices of schema 1 have no blocks: a
machine that replays them chooses the blocks by its own policy.
2 to 3: names of fields, events, options, phases, reverse transfers, faults and invariants (see
`renamed`).
3 to 4: reasons of a finding are facts. Those of schema 3 are sentences, whose facts are not known.
The death of an engine is its exception, its function and its message.
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


def _from_3(record: Record) -> Record:
    """Schema 3 has sentences."""
    if isinstance(record.get("changed"), dict):
        changed = (_with_death(at, value) for at, value in record["changed"].items())
        record = record | {"changed": dict(changed)}
    return with_facts(record)


def with_facts(record: Record) -> Record:
    """A finding whose reasons are sentences, as one whose facts are not known."""
    found = record.get("finding")
    reasons = found.get("reasons") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(reasons, list):
        return record
    upgraded = [{"kind": "", "says": each} if isinstance(each, str) else each for each in reasons]
    return record | {"finding": found | {"reasons": upgraded}}


def _with_death(at: Any, value: Any) -> tuple[Any, Any]:
    """A death was written as "exception in function: message", that of the model as a message."""
    parts = at.split("/")
    if not isinstance(value, str) or parts[1:2] + parts[3:] != ["engines", "dead"]:
        return at, value
    if not value:
        return at, None
    place, _, message = value.partition(": ")
    exception, _, function = place.partition(" in ")
    if exception.isidentifier() and function and " " not in function:
        return at, [exception, function, message]
    return at, ["", "", value]


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


STEPS: tuple[Callable[[Record], Record], ...] = (_from_1, _from_2, _from_3)
