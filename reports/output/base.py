"""What all outputs of `--json` have in common."""

import json
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union

import msgspec
from msgspec import Meta, Struct, UnsetType

Field = TypeVar("Field")

Maybe = Union[Field, UnsetType]  # noqa: UP007 (an alias with a parameter)
"""A field that is left out where it says nothing."""

TraceLine: TypeAlias = dict[str, Any]
"""A line of a trace file: an object of docs/schemas/trace.json."""

ExitCode = Annotated[
    int, Meta(ge=0, le=255, extra_json_schema={"enum": [0, 1, 2, 3, 129, 130, 143]})
]
"""The exit code of the process; 4 (the output could not be written) is never printed."""

VerdictName: TypeAlias = Literal["PROVED", "EXHAUSTED", "SAMPLED", "VIOLATED", "UNKNOWN"]


class OutputPart(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of an output. Decoded strictly, an unknown field is an error."""


class Output(OutputPart, frozen=True, kw_only=True, tag_field="command"):
    """The object that a command prints. The field `command` has the name of the command."""

    exit_code: ExitCode


class Stopped(OutputPart, frozen=True, kw_only=True):
    """The object of any command that could not do its work: it was interrupted, or kvproof does not
    fit this vLLM."""

    command: str
    verdict: Literal["UNKNOWN"] = "UNKNOWN"
    exit_code: ExitCode
    reason: str


def encoded(output: OutputPart) -> str:
    """The output as JSON text, indented and in ASCII."""
    return json.dumps(msgspec.to_builtins(output), indent=2)
