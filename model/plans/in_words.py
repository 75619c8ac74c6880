"""A record as text for a reader: what is not as by default, by the names that a file has for it."""

from collections.abc import Iterator
from typing import Any

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields


def in_words(record: Struct, *but: str) -> str:
    """The fields of a record with their values, but for those that have their default value or are
    named in `but`: "tokens 4, beside salt". A field that is true is its name alone."""
    return ", ".join(_fields(record, but))


def _fields(record: Struct, but: tuple[str, ...]) -> Iterator[str]:
    for field in fields(record):
        value, default = getattr(record, field.name), field.default
        if field.default_factory is not NODEFAULT:
            default = field.default_factory()
        if field.name not in but and value != default:
            yield field.name if value is True else f"{field.name} {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, Struct):
        return f"({in_words(value)})"
    if isinstance(value, tuple):
        return " ".join(map(_value, value)) or "none"
    return str(value)


def tag(record: Struct) -> str:
    """The word by which a file tells a record from others that may stand in its place."""
    return str(record.__struct_config__.tag)
