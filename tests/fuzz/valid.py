"""Which inputs the published schemas allow, decided without kvproof's own decoder."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"

NAME_MAX = 64
"""The longest name of a cluster, an engine or a job, in characters."""


@cache
def validator(name: str) -> Any:
    """The validator of a published schema; None if there is no such file."""
    path = SCHEMAS / f"{name}.json"
    if not path.exists():
        return None
    schema = json.loads(path.read_text(encoding="utf-8"))
    return jsonschema.validators.validator_for(schema)(schema)


def wrong(name: str, value: Any) -> str:
    """Why a schema does not allow a value; empty if it does, or if there is no such schema."""
    checks = validator(name)
    try:
        first = next(checks.iter_errors(value), None) if checks else None
    except RecursionError:
        return "it is nested too deeply"
    return f"{first.json_path}: {first.message[:200]}" if first else ""


def parsed(data: bytes | str) -> Any:
    """A JSON text, strictly: UTF-8, no NaN, no lone surrogates. Raises ValueError."""
    text = data.decode("utf-8") if isinstance(data, bytes) else data
    try:
        value = json.loads(text, parse_constant=_no_constant)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


def cluster_file(data: bytes) -> str:
    """Why this is no cluster file; empty if it may be one."""
    try:
        value = parsed(data)
    except ValueError as error:
        return str(error)
    if not isinstance(value, dict):
        return "it is no object"
    return wrong("cluster", value) or names(value)


def names(cluster: Mapping[str, Any]) -> str:
    """Which name of a cluster is not allowed; empty if all are."""
    for field in ("engines", "jobs"):
        items = cluster.get(field, ())
        if not isinstance(items, (list, tuple)):
            return f"{field} is no list"
        here = [item.get("name") for item in items if isinstance(item, dict)]
        if len(here) != len(items):
            return f"an entry of {field} is no object"
        if len({json.dumps(name) for name in here}) < len(here):
            return f"two {field} have one name"
        for name in here:
            if why := _name(name):
                return f"the name {str(name)[:80]!r} in {field} {why}"
    return _name(cluster.get("name", "custom"))


def _name(name: Any) -> str:
    if not isinstance(name, str):
        return "is no text"
    if not 1 <= len(name) <= NAME_MAX:
        return "is empty or too long"
    return "" if name.isprintable() else "is not printable"


def trace_file(data: bytes) -> str:
    """Why this is no trace file of the newest schema; empty if it may be one."""
    try:
        text = data.decode("utf-8")
        records = [parsed(line) for line in text.split("\n")[:-1]]
    except ValueError as error:
        return str(error)
    if not text.endswith("\n"):
        return "it was cut off"
    if not all(isinstance(record, dict) for record in records):
        return "a line is no object"
    if len(records) < 2 or "end" not in records[-1]:
        return "it has no end"
    return next(_wrong_records(records), "")


def _wrong_records(records: list[dict[str, Any]]) -> Iterator[str]:
    head = records[0]
    if head.get("kind") != "kvproof-trace" or type(head.get("schema")) is not int:
        yield "the first line is no header"
    if not isinstance(head.get("config"), dict) or not isinstance(
        head["config"].get("engines"), list
    ):
        yield "the header has no cluster"
    elif why := names(head["config"]):
        yield why
    if head.get("schema") != 4:
        return  # an older schema is not published
    for number, record in enumerate(records, 1):
        if why := wrong("trace", record):
            yield f"line {number}: {why}"
