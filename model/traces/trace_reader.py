"""Reads a trace file. Each error names the line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

from msgspec import UNSET, Meta, Struct

from kvproof.model.config import Cluster
from kvproof.model.errors import UsageError
from kvproof.model.events import Event, Schedule
from kvproof.model.files.decoding import check_named_once, converted, decoded_json
from kvproof.model.files.reading import read_text, shown
from kvproof.model.finding import Finding
from kvproof.model.traces.lines import KIND, SCHEMA, EndLine, EventLine, FindingLine, Header
from kvproof.model.traces.names import check_names
from kvproof.model.traces.state_diff import Change
from kvproof.model.traces.state_fields import WHOLE, Fields
from kvproof.model.traces.trace import Trace
from kvproof.model.traces.trace_upgrade import Record, upgraded

Declared = TypeVar("Declared", bound=Struct)

SIZE_MAX_MIB = 16
EVENTS_MAX = 10_000
"""The largest trace that is read."""


class _Start(Struct, frozen=True):
    """What the header of every schema has: it says how the other fields are read."""

    schema: Annotated[int, Meta(ge=1)]


def read(path: Path) -> Trace:
    """The trace in a file.

    Raises UsageError where it cannot be read, is cut off or too new, where a line is not of its
    declared type, where it names something that the cluster does not have, or where its changes
    give no state.
    """
    return _Reader(path).trace()


class _Reader:
    """The lines of a file, from the first to the last."""

    def __init__(self, path: Path) -> None:
        text = read_text(path, "trace file", SIZE_MAX_MIB)
        self.path = shown(path)
        self.lines = text.split("\n")
        self.number = 0
        self.schema = SCHEMA
        self.ended = text.endswith("\n")
        if self.ended:
            self.lines.pop()

    @property
    def place(self) -> str:
        """The current line, for errors."""
        return f"Line {self.number} of {self.path}"

    def fail(self, what: str, use: str = WHOLE) -> NoReturn:
        raise UsageError(f"{self.place} {what}. Use {use}.")

    @contextmanager
    def located(self) -> Iterator[None]:
        """The errors of other modules get the number of the line in front."""
        try:
            yield
        except UsageError as error:
            raise UsageError(f"{self.place}: {error}") from error

    def next(self) -> Record:
        """The next line as plain data of the newest schema."""
        self.number += 1
        if self.number > len(self.lines):
            self.fail("is missing: the trace was cut off before its end record")
        if self.number == len(self.lines) and not self.ended:
            self.fail("has no line end: the trace was cut off")
        line = self.lines[self.number - 1]
        record = decoded_json(line, dict[str, Any], self.place, WHOLE)
        check_named_once(line, self.place)
        if self.number == 1:
            self.check_schema(record)
        with self.located():
            return upgraded(record, self.schema)

    def check_schema(self, record: Record) -> None:
        """The first line says which schema the file has."""
        if record.get("kind") != KIND:
            self.fail(f"does not say kind {KIND}", "a trace file, not another kind of file")
        self.schema = self.typed(record, _Start).schema
        if self.schema > SCHEMA:
            self.fail(
                f"says schema {self.schema}, newer than the {SCHEMA} this kvproof reads",
                "a trace of this release, or upgrade kvproof",
            )
        record["schema"] = SCHEMA

    def typed(self, record: Record, kind: type[Declared]) -> Declared:
        """A line of a declared type."""
        return converted(record, kind, self.place, WHOLE)

    def trace(self) -> Trace:
        """All of the file."""
        header = self.typed(self.next(), Header)
        cluster = header.config
        fields = Fields(cluster)
        events: list[Event] = []
        changes: list[Change] = []
        finding: Finding | None = None
        record = self.next()
        while "event" in record:
            event, change = self.event(cluster, self.typed(record, EventLine), len(events) + 1)
            if events and (change is None) == bool(changes):
                self.fail("has changes of the state, or has none, unlike the lines before it")
            events.append(event)
            if change is not None:
                changes.append(change)
                with self.located():
                    fields.follow(change)
            record = self.next()
        if "finding" in record:
            finding = self.finding(cluster, self.typed(record, FindingLine), bool(events))
            record = self.next()
        if "end" not in record:
            self.fail("has no field event, finding or end")
        self.check_end(self.typed(record, EndLine), len(events))
        return Trace(
            cluster=cluster,
            events=tuple(events),
            changes=tuple(changes) if changes or not events else None,
            finding=finding,
            faults=header.faults,
            machine=header.machine,
            seed=header.seed,
            vllm=header.versions.vllm,
            kvproof=header.versions.kvproof,
        )

    def event(self, cluster: Cluster, line: EventLine, step: int) -> tuple[Event, Change | None]:
        """The event of a line, and its changes if they are recorded."""
        if step > EVENTS_MAX:
            self.fail(f"has event {step}", f"a trace of at most {EVENTS_MAX} events")
        if line.step != step:
            self.fail(f"is step {line.step} where step {step} belongs")
        if isinstance(line.event, Schedule) and line.event.chose is None:
            self.fail("has a Schedule without what it chose")
        with self.located():
            check_names(cluster, line.event)
        if line.changed is UNSET and line.removed is UNSET:
            return line.event, None
        if line.changed is UNSET or line.removed is UNSET:
            self.fail("has only one of the fields changed and removed")
        return line.event, Change(line.changed, line.removed)

    def finding(self, cluster: Cluster, line: FindingLine, follows: bool) -> Finding:
        """The finding, which follows an event."""
        if not follows:
            self.fail("has a finding and no event before it")
        with self.located():
            check_names(cluster, line.finding.about)
        return Finding(line.finding.invariant, line.finding.reasons, line.finding.about)

    def check_end(self, line: EndLine, steps: int) -> None:
        """The end record counts the events, and nothing follows it."""
        if line.end.steps != steps:
            self.fail(f"counts {line.end.steps} steps where the trace has {steps}")
        if self.number < len(self.lines):
            self.number += 1
            self.fail("follows the end record")
