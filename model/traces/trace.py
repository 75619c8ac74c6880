"""Runs as files: JSON Lines, one record a line, with a schema version.

The header of a trace has the cluster and the machine, and that of a plan what real vLLM is started
with. Then each event has one line, in a trace with its changes of the state (see `state_diff`; left
out where the states could not be recorded). Then come the finding, if there is one, and an end
record with the number of events: a file without an end record was cut off.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

from msgspec import UNSET, to_builtins
from msgspec.structs import replace

import kvproof
from kvproof.model.config import Cluster
from kvproof.model.events import Event, Schedule
from kvproof.model.files.folders import made_folder
from kvproof.model.files.writing import write_fresh, write_new
from kvproof.model.finding import Finding
from kvproof.model.plans import connector, engine
from kvproof.model.plans.connector import ConnectorPlan
from kvproof.model.plans.engine import EnginePlan
from kvproof.model.state import initial
from kvproof.model.traces.lines import (
    KIND,
    SCHEMA,
    ActionLine,
    AnyHeader,
    AnyLine,
    Cause,
    ConnectorHeader,
    CoreHeader,
    End,
    EndLine,
    EventLine,
    FindingLine,
    Found,
    Header,
    MessageLine,
    NamedConnector,
    Versions,
)
from kvproof.model.traces.state_diff import Change, Flat, flat, patched


@dataclass(frozen=True)
class Trace:
    """A run that can be replayed. `changes` has one entry per event, or is None.

    `vllm` is the release of vLLM that a live trace was recorded with, and `tree` its folder where
    it is not the installed one. The state before the first event is the initial state of the
    cluster.
    """

    cluster: Cluster
    events: tuple[Event, ...]
    changes: tuple[Change, ...] | None = None
    finding: Finding | None = None
    faults: tuple[str, ...] = ()
    machine: str = "model"
    seed: int = 0
    vllm: str | None = None
    kvproof: str = kvproof.__version__
    tree: str = ""

    def states(self) -> Iterator[Flat]:
        """The state before the first event and after each event, one after the other. There are
        none where no states were recorded."""
        state = flat(initial(self.cluster))
        if self.changes is not None:
            yield state
        for change in self.changes or ():
            state = patched(state, change)
            yield state


@dataclass(frozen=True)
class PlanRun:
    """A plan that real vLLM can carry out again: of an engine with a connector, which is named, or
    of an engine core. `finding` is what it broke. `cause` is there if the finding is a known one.
    `vllm` and `tree` are as those of a trace."""

    plan: ConnectorPlan | EnginePlan
    connector: NamedConnector | None = None
    finding: Finding | None = None
    cause: Cause | None = None
    seed: int = 0
    vllm: str | None = None
    kvproof: str = kvproof.__version__
    tree: str = ""

    @property
    def lines(self) -> list[str]:
        """The plan as text for a reader, one line for each part."""
        plan = self.plan
        if isinstance(plan, EnginePlan):
            return engine.lines(plan)
        named = f"connector {self.connector.name}" if self.connector else "no connector"
        return [named, *connector.lines(plan)]


def write_in(folder: Path, stem: str, run: Trace | PlanRun) -> Path:
    """Write a new file in a folder, which is made if it is missing, and return its path:
    `stem.jsonl`, or `stem-2.jsonl` where that is another run, and so on. Raises UsageError where
    it cannot be written."""
    return write_fresh(made_folder(folder), stem, ".jsonl", _text(run))


def write(path: Path, run: Trace | PlanRun) -> None:
    """Write a new file. Raises UsageError where it exists or cannot be written."""
    write_new(path, _text(run))


def _text(run: Trace | PlanRun) -> str:
    return "".join(json.dumps(record) + "\n" for record in records(run))


def records(run: Trace | PlanRun) -> list[dict[str, Any]]:
    """The lines of a run file as plain data."""
    return [to_builtins(line) for line in _lines(run)]


def _lines(run: Trace | PlanRun) -> Iterator[AnyLine]:
    events = run.events if isinstance(run, Trace) else run.plan.actions
    yield _header(run)
    yield from _events(run) if isinstance(run, Trace) else _actions(run.plan)
    if run.finding is not None:
        cause = run.cause if isinstance(run, PlanRun) else None
        yield FindingLine(Found.of(run.finding), cause or UNSET)
    yield EndLine(End(len(events)))


def _header(run: Trace | PlanRun) -> AnyHeader:
    versions = Versions(run.kvproof, run.vllm, run.tree or UNSET)
    start: Any = {"schema": SCHEMA, "kind": KIND, "versions": versions, "seed": run.seed}
    if isinstance(run, Trace):
        machine: Any = run.machine
        return Header(**start, config=run.cluster, faults=run.faults, machine=machine)
    bare = replace(run.plan, actions=())
    if isinstance(bare, EnginePlan):
        return CoreHeader(**start, config=bare)
    assert run.connector is not None
    return ConnectorHeader(**start, connector=run.connector, config=bare)


def _events(trace: Trace) -> Iterator[EventLine]:
    changes: Iterable[Change | None] = trace.changes or repeat(None, len(trace.events))
    for number, (event, change) in enumerate(zip(trace.events, changes, strict=True), start=1):
        yield EventLine(number, _with_choices(event), *(change or ()))


def _actions(plan: ConnectorPlan | EnginePlan) -> Iterator[ActionLine | MessageLine]:
    kind: Any = MessageLine if isinstance(plan, EnginePlan) else ActionLine
    return (kind(number, action) for number, action in enumerate(plan.actions, start=1))


def _with_choices(event: Event) -> Event:
    """The event as it is written: a scheduler's choices are written even where there are none."""
    unknown = isinstance(event, Schedule) and event.chose is None
    return replace(event, chose=()) if unknown else event
