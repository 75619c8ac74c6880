"""Reads a trace file. Each error states the line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from kvproof.model.because import About
from kvproof.model.config import config_json
from kvproof.model.errors import UsageError
from kvproof.model.events import Event
from kvproof.model.files.decoding import converted
from kvproof.model.finding import Finding
from kvproof.model.traces.state_diff import Change
from kvproof.model.traces.trace import KIND, SCHEMA, Trace
from kvproof.model.traces.trace_upgrade import upgraded

WHOLE = "Use a trace file as kvproof wrote it."


def read(path: Path) -> Trace:
    """The trace in a file. Raises UsageError where it is missing, broken, cut off or too new."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"The trace file {path} cannot be read ({error.strerror}). "
            "Use the path of a trace file."
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"The file {path} is not UTF-8 text. {WHOLE}") from error
    return _Reader(path, text).trace()


class _Reader:
    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.lines = text.split("\n")
        self.number = 0
        self.schema = SCHEMA
        self.ended = text.endswith("\n")
        if self.ended:
            self.lines.pop()

    def fail(self, what: str, remedy: str = WHOLE) -> NoReturn:
        raise UsageError(f"Line {self.number} of {self.path} {what}. {remedy}")

    def next(self) -> dict[str, Any]:
        """The next record."""
        if self.number >= len(self.lines):
            self.number += 1
            self.fail("is missing: the trace was cut off before its end record")
        line = self.lines[self.number]
        self.number += 1
        if self.number == len(self.lines) and not self.ended:
            self.fail("has no line end: the trace was cut off")
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            self.fail("is not JSON")
        if not isinstance(record, dict):
            self.fail("is not a JSON object")
        newest: dict[str, Any] = self.parsed(lambda r: upgraded(r, self.schema), record)
        return newest

    def field(self, record: dict[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:
        """A field of a record, checked."""
        value = record.get(name)
        if name not in record or not isinstance(value, kind) or isinstance(value, bool):
            self.fail(f"has no usable field {name}")
        return value

    def texts(self, record: dict[str, Any], name: str) -> tuple[str, ...]:
        """A field that is a list of strings."""
        values = self.field(record, name, list)
        if not all(isinstance(v, str) for v in values):
            self.fail(f"has a field {name} that is not a list of texts")
        return tuple(values)

    def parsed(self, parse: Callable[[Any], Any], data: Any) -> Any:
        """Data parsed by another module; its error gets the line number in front."""
        try:
            return parse(data)
        except UsageError as error:
            raise UsageError(f"Line {self.number} of {self.path}: {error}") from error

    def trace(self) -> Trace:
        """All of the file."""
        header = self.header()
        taken: list[Event] = []
        changes: list[Change] = []
        finding: Finding | None = None
        record = self.next()
        while "event" in record:
            if self.field(record, "step", int) != len(taken) + 1:
                self.fail(f"is step {record['step']} where step {len(taken) + 1} belongs")
            taken.append(
                converted(record["event"], Event, f"Line {self.number} of {self.path}", "the file as it was written")
            )
            if "changed" in record:
                changed = self.field(record, "changed", dict)
                changes.append(Change(changed, self.texts(record, "removed")))
            record = self.next()
        if "finding" in record:
            if not taken:
                self.fail("has a finding and no event before it")
            found = self.field(record, "finding", dict)
            reasons = self.texts(found, "reasons")
            finding = Finding(self.field(found, "invariant", str), reasons, self.about(found))
            record = self.next()
        self.check_end(record, len(taken))
        if changes and len(changes) < len(taken):
            self.fail("ends a trace in which only some events have their changes")
        return Trace(
            cluster=header["config"],
            events=tuple(taken),
            changes=tuple(changes) if changes or not taken else None,
            finding=finding,
            faults=tuple(header["faults"]),
            machine=header["machine"],
            seed=header["seed"],
            vllm=header["versions"].get("vllm"),
            kvproof=str(header["versions"].get("kvproof")),
        )

    def about(self, found: dict[str, Any]) -> About:
        """What a finding is about; older traces do not have it."""
        fields = self.field(found, "about", dict) if "about" in found else {}
        for name in fields:
            if name not in About.__struct_fields__:
                self.fail(
                    f"has a finding about {name!r}, which is not one of {About.__struct_fields__}"
                )
            self.field(fields, name, int if name in ("group", "block") else str)
        return About(**fields)

    def header(self) -> dict[str, Any]:
        """The first line, checked, with its config parsed."""
        record = self.next()
        if record.get("kind") != KIND:
            self.fail(f"does not say kind {KIND}", "Use a trace file, not another kind of file.")
        schema = self.field(record, "schema", int)
        if schema > SCHEMA:
            self.fail(
                f"says schema {schema}, newer than the {SCHEMA} this kvproof reads",
                "Use a trace of this release, or upgrade kvproof.",
            )
        if schema < 1:
            self.fail(f"says schema {schema}, which does not exist")
        self.schema = schema
        record = dict(self.parsed(lambda r: upgraded(r, schema), record))
        record["config"] = self.parsed(config_json.from_json, self.field(record, "config", dict))
        self.texts(record, "faults")
        self.field(record, "machine", str)
        self.field(record, "seed", int)
        self.field(record, "versions", dict)
        return record

    def check_end(self, record: dict[str, Any], steps: int) -> None:
        """The end record counts the events, and nothing follows it."""
        end = self.field(record, "end", dict)
        if self.field(end, "steps", int) != steps:
            self.fail(f"counts {end['steps']} steps where the trace has {steps}")
        if self.number < len(self.lines):
            self.number += 1
            self.fail("follows the end record")
