"""Reads a run file, and checks that the events and the finding of a trace name things that the
cluster has. Each error names the line."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, cast

from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace

from kvproof.model.config import Cluster
from kvproof.model.config.sides import transfer_names
from kvproof.model.errors import UsageError, unknown
from kvproof.model.events import Event, Evict, Schedule
from kvproof.model.files.reading import read_text, shown
from kvproof.model.plans.messages import ACTIONS_MAX
from kvproof.model.state import initial
from kvproof.model.traces.line_reader import READS_OLDER, Format, Line, LineReader
from kvproof.model.traces.lines import (
    KIND,
    SCHEMA,
    ActionLine,
    AnyHeader,
    ConnectorHeader,
    CoreHeader,
    EventLine,
    FindingLine,
    Header,
    MessageLine,
)
from kvproof.model.traces.restored import checked
from kvproof.model.traces.state_diff import Change, flat, patched
from kvproof.model.traces.trace import PlanRun, Trace

REQUESTS = ("request", "needy", "failed", "accepted")
"""Fields of events, choices and findings with the names of requests or transfers."""


def check_names(cluster: Cluster, named: Struct) -> None:
    """Raises UsageError where an event, or what a finding is about, names an engine, a request or
    a block that the cluster does not have."""
    engines = [engine.name for engine in cluster.engines]
    requests = transfer_names(cluster)
    for field, name in _names(named):
        known: Collection[str] = engines if field == "engine" else requests
        if name not in known:
            raise unknown("engine" if field == "engine" else "request", name, known)
    if isinstance(named, Evict) and named.block >= cluster.engine(named.engine).num_blocks:
        raise UsageError(
            f"Engine {named.engine} has no block {named.block}. Use a block of its pool."
        )


def _names(named: Struct) -> Iterator[tuple[str, str]]:
    """The fields that name something, and the names. An optional field that is empty names
    nothing."""
    fields = asdict(named)
    optional = [*fields][len(fields) - len(named.__struct_defaults__) :]
    for field, value in fields.items():
        if field == "chose":
            for choice in value:
                yield from _names(choice)
        elif field == "accepted":
            yield from ((field, name) for name in value)
        elif field in ("engine", *REQUESTS) and (value or field not in optional):
            yield field, value


SIZE_MAX_MIB = 16
EVENTS_MAX = 10_000
"""The number of events of the largest trace that is read."""

RECORDED_BY = f"commit {READS_OLDER} of kvproof, which reads it, or kvproof explore"
FORMAT = Format("trace", KIND, SCHEMA, RECORDED_BY, "kvproof-trace")


def read(path: Path) -> Trace:
    """The trace in a file. Raises UsageError as `read_run`, and where it is a plan."""
    run = read_run(path)
    if isinstance(run, PlanRun):
        raise UsageError(
            f"{shown(path)} is a plan, which has no states. Use kvproof replay or kvproof report "
            "with it, or a trace."
        )
    return run


def read_run(path: Path) -> Trace | PlanRun:
    """The run in a file.

    Raises UsageError where it cannot be read, is cut off or has another schema, where a line is not
    of its declared type, where it names something that the cluster does not have, or where its
    changes give no state.
    """
    return _Reader(path, read_text(path, "trace file", SIZE_MAX_MIB), FORMAT).run()


class _Reader(LineReader):
    """The lines of a run file. `after` is the line that was read last."""

    after: Line

    def run(self) -> Trace | PlanRun:
        """Read all lines of the file."""
        header = self.typed(self.next(), cast("type[Any]", AnyHeader))
        return self.trace(header) if isinstance(header, Header) else self.plan(header)

    def plan(self, header: ConnectorHeader | CoreHeader) -> PlanRun:
        """Read the actions of a plan, and what it broke."""
        if header.config.actions:
            self.fail("has actions in its header", "one line for each action")
        named = header.connector if isinstance(header, ConnectorHeader) else None
        lines = (
            self.events(ActionLine, EVENTS_MAX) if named else self.events(MessageLine, ACTIONS_MAX)
        )
        actions = tuple(line.event for line in lines)
        found = self.finding()
        self.check_end(self.after, len(actions))
        return PlanRun(
            plan=replace(header.config, actions=actions),
            connector=named,
            finding=found.finding.finding if found else None,
            cause=(found.cause or None) if found else None,
            **_recorded(header),
        )

    def events(self, kind: type[Any], most: int) -> Iterator[Any]:
        """Read the lines of the events, in order. The line after them is in `after`."""
        number = 0
        while "event" in (record := self.next()):
            number += 1
            if number > most:
                self.fail(f"has event {number}", f"a run of at most {most} events")
            line = self.typed(record, kind)
            if line.step != number:
                self.fail(f"is step {line.step} where step {number} belongs")
            yield line
        self.after = record

    def finding(self, cluster: Cluster | None = None) -> FindingLine | None:
        """Read the line with the finding, if there is one, which names what a cluster has. The line
        after it is in `after`."""
        found = None
        if "finding" in self.after:
            found = self.typed(self.after, FindingLine)
            if cluster is not None and self.number == 2:
                self.fail("has a finding and no event before it")
            with self.located():
                if cluster is not None:
                    check_names(cluster, found.finding.about)
            self.after = self.next()
        if "end" not in self.after:
            self.fail("has no field event, finding or end")
        return found

    def trace(self, header: Header) -> Trace:
        """Read the events of a cluster into a trace."""
        cluster = header.config
        state = flat(initial(cluster))
        events: list[Event] = []
        changes: list[Change] = []
        for line in self.events(EventLine, EVENTS_MAX):
            event, change = self.event(cluster, line)
            if events and (change is None) == bool(changes):
                self.fail("has changes of the state, or has none, unlike the lines before it")
            events.append(event)
            if change is not None:
                changes.append(change)
                state = patched(state, change)
                with self.located():
                    checked(cluster, state)
        found = self.finding(cluster)
        self.check_end(self.after, len(events))
        return Trace(
            cluster=cluster,
            events=tuple(events),
            changes=tuple(changes) if changes or not events else None,
            finding=found.finding.finding if found else None,
            faults=header.faults,
            machine=header.machine,
            **_recorded(header),
        )

    def event(self, cluster: Cluster, line: EventLine) -> tuple[Event, Change | None]:
        """Read the event of a line, and its changes if they are recorded."""
        if isinstance(line.event, Schedule) and line.event.chose is None:
            self.fail("has a Schedule without what it chose")
        with self.located():
            check_names(cluster, line.event)
        if line.changed is UNSET and line.removed is UNSET:
            return line.event, None
        if line.changed is UNSET or line.removed is UNSET:
            self.fail("has only one of the fields changed and removed")
        return line.event, Change(line.changed, line.removed)


def _recorded(header: Any) -> dict[str, Any]:
    """What a header says of how a run was recorded."""
    versions = header.versions
    return {
        "seed": header.seed,
        "vllm": versions.vllm,
        "tree": versions.tree or "",
        "kvproof": versions.kvproof,
    }
