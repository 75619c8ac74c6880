"""The limits of each field of a cluster, and the check of a new record against its declaration.

A field declares its limits in its type: `Annotated[int, Meta(ge=1, le=4096)]`. The decoder of files
and the JSON Schema read them there, and so does `check_declared`, for records made in code.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from kvproof.model.errors import NotValid
from kvproof.model.files import decoding

NUMBER_MAX = 10**18
"""The largest number that an error writes out."""

TEXT_MAX = 80
"""The largest number of characters of a wrong value in an error."""

Name = Annotated[str, Meta(min_length=1, max_length=64, description="printable characters")]
"""The name of a cluster, an engine or a job."""

PROMPT_TOKENS_MAX = 512
"""The longest prompt, in tokens. A model checker learns nothing from longer ones."""

Prompt = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=PROMPT_TOKENS_MAX,
        description="one printable character is one token",
    ),
]


def check_declared(record: msgspec.Struct, called: str) -> None:
    """Raises NotValid where a field of a new record is not what its type declares, or is a text
    with characters that cannot be printed. `called` is what the record is, such as "engine"."""
    for name, kind, _ in decoding.fields(type(record)):
        value = getattr(record, name)
        try:
            msgspec.convert(value, kind, strict=True)
        except msgspec.ValidationError as error:
            why, place, instead = decoding.refused(str(error), kind)
            raise refusal(record, called, name + place[1:], instead or why) from error
        texts = value if isinstance(value, tuple) else (value,)
        if not all(text.isprintable() for text in texts if isinstance(text, str)):
            raise refusal(record, called, name, "printable characters")


def refusal(record: msgspec.Struct, called: str, field: str, instead: str) -> NotValid:
    """The error for a wrong value of a field."""
    of = getattr(record, "name", None)
    named = f" {of}" if isinstance(of, str) and of.isprintable() and field != "name" else ""
    value = _brief(getattr(record, field.partition("[")[0]))
    return NotValid(f"{field} of {called}{named} is {value}. Use {instead}.", field)


def _brief(value: object) -> str:
    """A value as a short text."""
    if isinstance(value, int) and abs(value) > NUMBER_MAX:
        return "a number of many digits"
    text = repr(value)
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."
