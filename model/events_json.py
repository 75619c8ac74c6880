"""Events as plain data, and back. Each error says what is wrong with the data and what to use
instead."""

from typing import Any

from kvproof.model.errors import UsageError, unknown
from kvproof.model.events import BLOCKS, CHOICES, EVENTS, Choice, Complete, Event, Lists, Schedule


def to_json(event: Event) -> dict[str, Any]:
    """The event as plain data."""
    data = {"type": type(event).__name__, **event._asdict()}
    if isinstance(event, Schedule):
        data["chose"] = list(map(_choice_to_json, event.chose or ()))
    if isinstance(event, Complete):
        data["accepted"] = dict(event.accepted)
        if not event.accepted:
            del data["accepted"]
        if not event.failed:
            del data["failed"]
    return data


def _choice_to_json(choice: Choice) -> dict[str, Any]:
    """The choice as plain data, without the block lists that it does not record."""
    data = {"type": type(choice).__name__, **choice._asdict()}
    for name in BLOCKS:
        if name in data:
            lists = data.pop(name)
            data |= {name: [list(blocks) for blocks in lists]} if lists else {}
    return data


def _build(table: dict[str, Any], what: str, data: Any) -> Any:
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise UsageError(f"{data!r} is not {what}. Use an object with a field type.")
    kind = table.get(data["type"])
    if kind is None:
        raise unknown(what, data["type"], table)
    fields = {k: v for k, v in data.items() if k != "type"}
    try:
        event = kind(**fields)
    except TypeError as error:
        raise UsageError(
            f"The fields of {what} {data['type']} are wrong ({error}). "
            f"Use the fields {', '.join(kind._fields)}."
        ) from error
    for name, value in event._asdict().items():
        number = name in ("local_hit", "external", "tokens", "block")
        if name in ("chose", "accepted", *BLOCKS):
            continue
        if not isinstance(value, int if number else str):
            raise UsageError(
                f"The field {name} of {what} {data['type']} is {value!r}. "
                f"Use {'a whole number' if number else 'a name'}."
            )
    return event


def from_json(data: Any) -> Event:
    """An event from plain data. Raises UsageError where the data is no event."""
    event: Event = _build(EVENTS, "an event", data)
    if isinstance(event, Schedule):
        written: Any = event.chose
        if not isinstance(written, list):
            raise UsageError(f"A Schedule chose {event.chose!r}. Use a list of choices.")
        event = event._replace(chose=tuple(map(_choice_from_json, written)))
    if isinstance(event, Complete):
        event = event._replace(accepted=_accepted(event.accepted or {}))
    return event


def _choice_from_json(data: Any) -> Choice:
    choice: Choice = _build(CHOICES, "a choice", data)
    lists: dict[str, Any] = {
        name: _lists(name, data["type"], data[name]) for name in BLOCKS if name in data
    }
    return choice._replace(**lists)


def _lists(name: str, kind: str, written: Any) -> Lists:
    """Lists of blocks, one for each group. Raises UsageError where the data is no such list."""
    lists = written if isinstance(written, list) else []
    whole = all(isinstance(b, list) and all(type(n) is int and n >= 0 for n in b) for b in lists)
    if not lists or not whole:
        raise UsageError(
            f"The field {name} of a choice {kind} is {written!r}. "
            "Use one list of block numbers for each group, or leave the field out."
        )
    return tuple(map(tuple, lists))


def _accepted(written: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(written, dict) or not all(type(n) is int for n in written.values()):
        raise UsageError(
            f"A Complete accepted {written!r}. Use an object with a whole number of drafts for "
            "each request."
        )
    return tuple(written.items())
