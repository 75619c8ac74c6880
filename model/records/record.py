"""A record in memory: the last events of a watched engine, how it is written and read, and the
block tables of its requests, event by event."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import force_setattr

from kvproof.model.config import Cluster, EngineConfig, Group
from kvproof.model.config.engine import Role
from kvproof.model.events import Lists
from kvproof.model.files.folders import made_folder
from kvproof.model.files.reading import opened, read_text
from kvproof.model.files.writing import write_fresh
from kvproof.model.finding import Finding
from kvproof.model.records.lines import (
    KIND,
    SCHEMA,
    EngineState,
    RecordedEngine,
    RecordedEvent,
    RecordHeader,
    RecordLine,
    StateLine,
)
from kvproof.model.traces import trace_reader
from kvproof.model.traces.line_reader import Format, Line, LineReader
from kvproof.model.traces.lines import End, EndLine, FindingLine, Found
from kvproof.model.traces.trace import PlanRun, Trace

SIZE_MAX_MIB = 64
"""The size of the largest record that is read, in MiB."""

HEADER_MAX = 1_000_000
"""The largest length of the first line, in bytes."""

FORMAT = Format("record", KIND, SCHEMA, "KVPROOF=record")


class Happened(NamedTuple):
    """An event of a record, and the findings after it."""

    event: RecordedEvent
    findings: tuple[Finding, ...] = ()


class Record(NamedTuple):
    """The last events of an engine, and the state of the engine when the record was written."""

    header: RecordHeader
    events: tuple[Happened, ...]
    state: EngineState

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, in their order."""
        return tuple(finding for happened in self.events for finding in happened.findings)


def record_lines(record: Record) -> Iterator[RecordLine]:
    """The lines of a record file, in order."""
    yield record.header
    for event, findings in record.events:
        yield event
        for each in findings:
            yield FindingLine(Found.of(each))
    yield StateLine(record.state)
    yield EndLine(End(len(record.events)))


def write_in(folder: Path, stem: str, record: Record) -> Path:
    """Write a new file in a folder, which is made if it is missing, and return its path. Raises
    UsageError where it cannot be written."""
    text = "".join(f"{msgspec.json.encode(line).decode()}\n" for line in record_lines(record))
    return write_fresh(made_folder(folder), stem, ".jsonl", text)


def read(path: Path) -> Record:
    """The record in a file. Raises UsageError where it is not a whole record."""
    return _Reader(path, read_text(path, "record file", SIZE_MAX_MIB), FORMAT).record()


def read_either(path: Path) -> Trace | PlanRun | Record:
    """The trace, the plan or the record in a file: its first line says which. Raises UsageError
    where it is none of them."""
    with opened(path, "trace file", SIZE_MAX_MIB) as file:
        first = file.readline(HEADER_MAX)
    try:
        kind = msgspec.json.decode(first, type=_Kind).kind
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        kind = ""
    return read(path) if kind == KIND else trace_reader.read_run(path)


class _Kind(msgspec.Struct):
    kind: str = ""


class _Reader(LineReader):
    """The lines of a record file."""

    def record(self) -> Record:
        """Read all lines of the file into a record."""
        header = self.typed(self.next(), RecordHeader)
        events: list[Happened] = []
        line = self.next()
        while "event" in line or "finding" in line:
            if "event" in line:
                events.append(Happened(self._event(header, events, line)))
            elif not events:
                self.fail("has a finding and no event before it")
            else:
                finding = self.typed(line, FindingLine).finding.finding
                event, before = events[-1]
                events[-1] = Happened(event, (*before, finding))
            line = self.next()
        if "state" not in line:
            self.fail("has no field event, finding or state")
        state = self.typed(line, StateLine).state
        for held in state.requests:
            self._check_groups(header, held.tables)
        self.check_end(self.next(), len(events))
        return Record(header, tuple(events), state)

    def _event(self, header: RecordHeader, events: list[Happened], line: Line) -> RecordedEvent:
        event = self.typed(line, RecordedEvent)
        if event.step != header.dropped + len(events) + 1:
            self.fail(f"is step {event.step} where step {header.dropped + len(events) + 1} belongs")
        groups = len(header.engine.groups)
        for change in event.tables:
            if change.group >= groups:
                self.fail(f"names group {change.group} of an engine with {groups}")
        return event

    def _check_groups(self, header: RecordHeader, lists: Lists) -> None:
        groups = len(header.engine.groups)
        if len(lists) not in (0, groups):
            self.fail(f"has blocks in {len(lists)} groups of an engine with {groups}")


class After(NamedTuple):
    """An event, and the block tables after it. A request whose first blocks were taken before the
    record begins is not in `tables`."""

    happened: Happened
    tables: dict[str, Lists]


def followed(record: Record) -> Iterator[After]:
    """Each event of a record with the tables after it."""
    groups = len(record.header.engine.groups)
    empty: Lists = ((),) * groups
    tables: dict[str, Lists] = {}
    lost: set[str] = set()
    for happened in record.events:
        tables = dict(tables)
        for change in happened.event.tables:
            name, group = change.request, change.group
            table = tables.get(name, empty)
            if change.at > len(table[group]):
                lost.add(name)
            changed = (*table[group][: change.at], *change.blocks)
            tables[name] = (*table[:group], changed, *table[group + 1 :])
            if not any(tables[name]):
                del tables[name]
                lost.discard(name)
        yield After(happened, {name: held for name, held in tables.items() if name not in lost})


def pair(prefill: RecordedEngine, decode: RecordedEngine) -> Cluster:
    """The cluster of a prefill engine P and a decode engine D."""
    engines = _engine(prefill, "P", "prefill"), _engine(decode, "D", "decode")
    cluster = Cluster("joined", (EngineConfig("E", (Group("full", 1),)),))
    force_setattr(cluster, "engines", engines)
    vars(cluster).clear()  # what was computed of the engines before
    return cluster


def _engine(recorded: RecordedEngine, name: str, role: Role) -> EngineConfig:
    """The options that pairing depends on."""
    engine = EngineConfig(name, (Group("full", 1),))
    groups = []
    for each in recorded.groups:
        group = Group("full", 1)
        for field in each.__struct_fields__:
            force_setattr(group, field, getattr(each, field))
        groups.append(group)
    options = {"groups": tuple(groups), "num_blocks": recorded.num_blocks, "role": role}
    for field, value in (options | {"drafts": recorded.drafts}).items():
        force_setattr(engine, field, value)
    vars(engine).clear()
    return engine
