"""Decodes data from outside into declared types, strictly: no field is missing, unknown or of
another type."""

from typing import Any, TypeVar

import msgspec

from kvproof.model.errors import UsageError

Declared = TypeVar("Declared")


def decoded_json(text: str | bytes, kind: type[Declared], source: str, use: str) -> Declared:
    """A value of a declared type from JSON. `source` names the data in errors, such as "The file
    a.json"; `use` is what to use instead, without a full stop. Raises UsageError."""
    try:
        return msgspec.json.decode(text, type=kind, strict=True)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _refused(error, source, use) from error


def converted(data: Any, kind: type[Declared], source: str, use: str) -> Declared:
    """A value of a declared type from plain data. Raises UsageError as `decoded_json`."""
    try:
        return msgspec.convert(data, kind, strict=True)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _refused(error, source, use) from error


def _refused(error: Exception, source: str, use: str) -> UsageError:
    why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return UsageError(f"{source} is not valid: {why}. Use {use}.")
