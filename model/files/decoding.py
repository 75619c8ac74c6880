"""Decodes data from outside into declared types, strictly: no field is missing, unknown or of
another type.

The limits of a number, the length of a text and the values of an enumeration are declared once, in
the type. The decoder refuses what breaks them, and the error says in words what the type requires
at that place.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from kvproof.model.errors import NotValid, UsageError, nearest
from kvproof.model.files.reading import printable

PLACE = re.compile(r"(?P<why>.*?)(?: - at `(?P<place>\$.*)`)?", re.DOTALL)
"""A message of msgspec: what is wrong, and where."""

STEP = re.compile(r"\.([^.\[\]]+)|\[[^\]]*\]")
"""One step of a place: a field, or an item of a list."""

QUOTED = re.compile(r"(?:unknown field `(.*)`|enum value '(.*)')\Z", re.DOTALL)
"""The name that a message of msgspec finds unknown."""


def refused(message: str, kind: Any) -> tuple[str, str, str]:
    """What is wrong, where (such as "$.jobs[0]"), and what to use instead; the last is empty where
    the type does not say it. `message` is msgspec's, about data that should be of type `kind`."""
    found = PLACE.fullmatch(message)
    assert found is not None
    why, place = found["why"], found["place"] or "$"
    nodes = [inspect.type_info(kind)]
    for step in STEP.finditer(place):
        nodes = [inner for node in nodes for inner in _inner(node, step[1])]
    unknown = QUOTED.search(why)
    name = (unknown[1] or unknown[2] or "") if unknown else None
    wants = dict.fromkeys(filter(None, (wanted(node, name) for node in nodes)))
    return why[:1].lower() + why[1:], place, " or ".join(wants)


def _inner(node: inspect.Type, field: str | None) -> Iterator[inspect.Type]:
    """What a type requires one step further inside; `field` is None for an item of a list."""
    if isinstance(node, inspect.Metadata):
        yield from _inner(node.type, field)
    elif isinstance(node, inspect.UnionType):
        for member in node.types:
            yield from _inner(member, field)
    elif isinstance(node, inspect.StructType):
        yield from (f.type for f in node.fields if f.encode_name == field)
    elif isinstance(node, (inspect.VarTupleType, inspect.ListType)):
        yield node.item_type
    elif isinstance(node, inspect.TupleType):
        yield from node.item_types
    elif isinstance(node, inspect.DictType):
        yield node.value_type


def wanted(node: inspect.Type, unknown: str | None = None) -> str:
    """What a type requires, in words; `unknown` is a name that it does not know. Empty where there
    is nothing to say."""
    match node:
        case inspect.IntType():
            return _number(node.ge, node.le)
        case inspect.BoolType():
            return "true or false"
        case inspect.NoneType():
            return "null"
        case inspect.StrType():
            return f"text{_length(node.min_length, node.max_length, 'printable characters')}"
        case inspect.VarTupleType() | inspect.ListType():
            return f"a list{_length(node.min_length, node.max_length, 'items')}"
        case inspect.LiteralType():
            return _one_of(unknown, map(str, node.values))
        case inspect.StructType():
            if unknown is not None:
                return _one_of(unknown, (f.encode_name for f in node.fields))
            needed = (f.encode_name for f in node.fields if f.required)
            return f"an object with {', '.join(needed) or 'named fields'}"
        case inspect.UnionType():
            return " or ".join(filter(None, (wanted(member, unknown) for member in node.types)))
        case inspect.Metadata():
            return wanted(node.type, unknown)
    return ""


def _one_of(unknown: str | None, known: Iterable[str]) -> str:
    """The known name that is most like an unknown one, or all of them."""
    names = sorted(known)
    listed = f"one of {', '.join(names)}" if len(names) > 1 else "".join(names)
    return nearest(unknown or "", names) or listed


def _number(lowest: int | None, highest: int | None) -> str:
    if lowest is None or highest is None:
        return "a whole number"
    return f"a whole number from {lowest} to {highest}"


def _length(least: int | None, most: int | None, what: str) -> str:
    if most is None:
        return f" of {what}" if not least else f" of at least {least} {what}"
    return f" of {least} to {most} {what}" if least else f" of at most {most} {what}"


@functools.cache
def fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any, inspect.Type], ...]:
    """The fields of a declared type: name, type, and what `wanted` takes."""
    about = inspect.type_info(kind)
    assert isinstance(about, inspect.StructType)
    types = msgspec.structs.fields(kind)
    return tuple((f.name, f.type, node.type) for f, node in zip(types, about.fields, strict=True))


Declared = TypeVar("Declared")

TEXT_MAX = 200
"""The largest number of characters of a message that may quote the data."""


def decoded_json(text: str | bytes, kind: type[Declared], source: str, use: str) -> Declared:
    """A value of a declared type from JSON. `source` names the data in errors, such as "The file
    a.json"; `use` is what to use instead, without a full stop. Raises UsageError."""
    try:
        return msgspec.json.decode(text, type=kind, strict=True)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _refused(error, kind, source, use) from error


def converted(data: Any, kind: type[Declared], source: str, use: str) -> Declared:
    """A value of a declared type from plain data. Raises UsageError as `decoded_json` does."""
    try:
        return msgspec.convert(data, kind, strict=True)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _refused(error, kind, source, use) from error


KINDS = {
    "schema": "a trace, a plan or a record",
    "engines": "a cluster file",
    "actions": "a plan of kvproof before plans had a schema",
}
"""The kinds of files, each by a field that only it has."""


def kind_of(text: str) -> str:
    """What kind of file a text is, by the fields of its JSON or of its first line; empty where it
    is no JSON."""
    for part in (text, text.partition("\n")[0]):
        with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
            content = msgspec.json.decode(part)
            names = content if isinstance(content, dict) else ()
            return next(
                (kind for field, kind in KINDS.items() if field in names), "JSON of another kind"
            )
    return ""


def check_named_once(text: str | bytes, source: str) -> None:
    """Raises UsageError where an object of this JSON has a field twice: a decoder takes the last.
    The text must have been decoded before."""

    def checked(pairs: list[tuple[str, Any]]) -> None:
        found = Counter(name for name, _ in pairs)
        twice = next((name for name, count in found.items() if count > 1), None)
        if twice is not None:
            raise UsageError(
                f"{source} is not valid: an object has the field {printable(twice)} twice. "
                "Use each field once."
            )

    try:
        json.loads(text, object_pairs_hook=checked)
    except RecursionError as error:
        raise UsageError(
            f"{source} is not valid: it is nested too deeply. Use less depth."
        ) from error


def _refused(error: Exception, kind: Any, source: str, use: str) -> UsageError:
    """The error of a decoder as two sentences, with the place in the data."""
    if isinstance(error, RecursionError):
        return UsageError(f"{source} is not valid: it is nested too deeply. Use {use}.")
    if not isinstance(error, msgspec.ValidationError):
        return UsageError(f"{source} is not valid JSON ({error}). Use {use}.")
    cause = error.__cause__
    why, place, instead = refused(str(error), kind)
    if isinstance(cause, NotValid):
        place += f".{cause.field}" if cause.field else ""
        return UsageError(f"{source} is not valid at {printable(place)}: {cause}")
    why = printable(why)
    why = why if len(why) <= TEXT_MAX else f"{why[:TEXT_MAX]}..."
    return UsageError(f"{source} is not valid at {printable(place)}: {why}. Use {instead or use}.")
