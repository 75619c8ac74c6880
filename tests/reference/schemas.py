"""This module derives the JSON Schemas of the files that kvproof reads and writes from the declared
types.

`python -m tests.reference.schemas` rewrites docs/schemas/ in the current folder.
"""

import json
from pathlib import Path
from typing import Any, get_args

import msgspec

from kvproof.model.config.config_json import ClusterFile
from kvproof.model.files.writing import replace
from kvproof.model.records.lines import RecordLine
from kvproof.model.traces.lines import AnyLine
from kvproof.reports.gate_output import Gate

FOLDER = Path("docs/schemas")

TYPES: dict[str, tuple[Any, ...]] = {
    "cluster.json": (ClusterFile,),
    "gate.json": (Gate,),
    "record.json": get_args(RecordLine),
    "trace.json": get_args(AnyLine),
}
"""The types in each file. Where there are several, each line of a run or of a record is of one of
them. `gate.json` is of what `kvproof gate --json` prints."""


def schema(kinds: tuple[Any, ...]) -> dict[str, Any]:
    """Return the JSON Schema of a value of one of these types."""
    found, parts = msgspec.json.schema_components(kinds)
    for part in parts.values():
        if "description" in part:
            part["description"] = " ".join(part["description"].split())
    either = found[0] if len(found) == 1 else {"anyOf": list(found)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **either,
        "$defs": dict(sorted(parts.items())),
    }


def text(name: str) -> str:
    """Return the content of a schema file."""
    return json.dumps(schema(TYPES[name]), indent=2) + "\n"


if __name__ == "__main__":
    for file in TYPES:
        replace(FOLDER / file, text(file).encode())
