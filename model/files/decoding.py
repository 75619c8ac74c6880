"""Decodes data from outside into declared types, strictly: no field is missing, unknown or of
another type."""

import json
from collections import Counter
from typing import Any, TypeVar

import msgspec

from kvproof.model.errors import NotValid, UsageError
from kvproof.model.files import declared
from kvproof.model.files.reading import printable

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
    why, place, instead = declared.refused(str(error), kind)
    if isinstance(cause, NotValid):
        place += f".{cause.field}" if cause.field else ""
        return UsageError(f"{source} is not valid at {printable(place)}: {cause}")
    why = printable(why)
    why = why if len(why) <= TEXT_MAX else f"{why[:TEXT_MAX]}..."
    return UsageError(f"{source} is not valid at {printable(place)}: {why}. Use {instead or use}.")
