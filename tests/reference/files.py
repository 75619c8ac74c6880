"""The files that kvproof reads and writes, from their JSON Schemas."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kvproof.model.traces.lines import ActionLine, EventLine, MessageLine
from tests.reference.markdown import code, table
from tests.reference.schemas import TYPES, schema

Schema = Mapping[str, Any]

UNLIMITED = 2**31 - 1
"""From here on, a limit says nothing to a reader."""

WORDS = {
    "string": "text",
    "boolean": "true or false",
    "null": "null",
    "object": "object",
}
"""Types of JSON, in words."""

MODULES = re.compile(r" \(see `[\w.]+`\)|; see `[\w.]+`(?=\))")
SENTENCES = re.compile(r"(?<=\.) (?=[A-Z`\d])")


def cluster() -> str:
    """The objects of a cluster file."""
    defs = dict(schema(TYPES["cluster.json"])["$defs"])
    described = schema(TYPES["trace.json"])["$defs"]["Cluster"]
    about = f"{_description(defs['ClusterFile'])} {_description(described)}"
    defs["ClusterFile"] = {**defs["ClusterFile"], "description": about}
    return _sections(defs, ["ClusterFile", "EngineConfig", "Group", "Job"])


def events() -> str:
    """The events of a trace, and the choices in them."""
    return _actions("event or choice", EventLine, "type")


def actions() -> str:
    """The actions of the plan of an engine with a connector."""
    return _actions("action", ActionLine, "type")


def messages() -> str:
    """The actions of the plan of an engine core."""
    return _actions("action", MessageLine, "kind")


def _actions(title: str, line: type, tag: str) -> str:
    """The kinds of events in a line, as a file names them."""
    rows = (
        (code(name), _fields(part, tag), _description(part))
        for part in schema((line,))["$defs"].values()
        for name in part["properties"].get(tag, {}).get("enum", ())
    )
    return table((title, "fields", "meaning"), rows)


def _sections(defs: Mapping[str, Schema], names: list[str]) -> str:
    return "\n\n".join(part for name in names for part in _section(name, defs[name]))


def _section(name: str, part: Schema) -> Iterator[str]:
    about, meanings = _by_field(part)
    yield f"### {name}"
    yield about
    required = set(part.get("required", ()))
    head = ("field", "value", "if left out", "meaning")
    rows = [
        (
            code(field),
            _value(kind),
            "refused" if field in required else _default(kind),
            meanings[field],
        )
        for field, kind in part["properties"].items()
    ]
    columns = 4 if any(meanings.values()) else 3
    yield table(head[:columns], (row[:columns] for row in rows))


def _by_field(part: Schema) -> tuple[str, dict[str, str]]:
    """What the description says of the whole, and of each field: the first sentence is about the
    whole, another one about the fields that it names or, without names, about what the sentence
    before is about."""
    first, *others = SENTENCES.split(_description(part))
    about = [first]
    meanings: dict[str, list[str]] = {field: [] for field in part["properties"]}
    fields: list[str] = []
    for sentence in others:
        named = [field for field in meanings if f"`{field}`" in sentence]
        fields = named or fields
        for text in [meanings[field] for field in fields] or [about]:
            text.append(sentence)
    return " ".join(about), {field: " ".join(text) for field, text in meanings.items()}


def _description(part: Schema) -> str:
    """The docstring of a type, without what names a module of the source."""
    return MODULES.sub("", " ".join(str(part.get("description", "")).split()))


def _fields(part: Schema, tag: str) -> str:
    """The names of the fields, without the one that says what the object is."""
    return code(*(name for name in part["properties"] if name != tag))


def _default(kind: Schema) -> str:
    return f"`{json.dumps(kind['default'])}`" if "default" in kind else "no value"


def _value(kind: Schema) -> str:
    """In words, what a field may have."""
    if "$ref" in kind:
        return str(kind["$ref"]).rpartition("/")[2]
    if "anyOf" in kind:
        return " or ".join(map(_value, kind["anyOf"]))
    if "enum" in kind:
        return " or ".join(f"`{each}`" for each in kind["enum"])
    if kind.get("type") == "array":
        return f"list of {_items(kind)}"
    if kind.get("type") in ("integer", "number"):
        return _number(kind)
    return WORDS.get(kind.get("type", ""), "any value")


def _items(kind: Schema) -> str:
    return _value(kind["items"]) if kind.get("items") else "values"


def _number(kind: Schema) -> str:
    low, high = kind.get("minimum"), kind.get("maximum", UNLIMITED)
    word = str(kind["type"])
    if low is None:
        return word
    return f"{word}, {low} to {high}" if high < UNLIMITED else f"{word} from {low} on"
