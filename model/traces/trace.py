"""Traces as files: JSON Lines, one record a line, with a schema version.

The header has the cluster and the machine. Then each event has one line, with its changes of the
state (see `state_diff`; left out where the states could not be recorded). Then come the finding, if
there is one, and an end record with the number of events: a file without an end record was cut off.
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
from kvproof.model.state import initial
from kvproof.model.traces.lines import (
    KIND,
    SCHEMA,
    AnyLine,
    End,
    EndLine,
    EventLine,
    FindingLine,
    Found,
    Header,
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


def write_in(folder: Path, stem: str, trace: Trace) -> Path:
    """Write a new file in a folder, which is made if it is missing, and return its path:
    `stem.jsonl`, or `stem-2.jsonl` where that is another trace, and so on. Raises UsageError where
    it cannot be written."""
    return write_fresh(made_folder(folder), stem, ".jsonl", _text(trace))


def write(path: Path, trace: Trace) -> None:
    """Write a new file. Raises UsageError where it exists or cannot be written."""
    write_new(path, _text(trace))


def _text(trace: Trace) -> str:
    return "".join(json.dumps(record) + "\n" for record in records(trace))


def records(trace: Trace) -> list[dict[str, Any]]:
    """The lines of a trace file as plain data."""
    return [to_builtins(line) for line in _lines(trace)]


def _lines(trace: Trace) -> Iterator[AnyLine]:
    yield Header(
        schema=SCHEMA,
        kind=KIND,
        config=trace.cluster,
        faults=trace.faults,
        machine=trace.machine,  # type: ignore[arg-type]
        versions=Versions(trace.kvproof, trace.vllm, trace.tree or UNSET),
        seed=trace.seed,
    )
    changes: Iterable[Change | None] = trace.changes or repeat(None, len(trace.events))
    for number, (event, change) in enumerate(zip(trace.events, changes, strict=True), start=1):
        yield EventLine(number, _with_choices(event), *(change or ()))
    if trace.finding is not None:
        yield FindingLine(Found.of(trace.finding))
    yield EndLine(End(len(trace.events)))


def _with_choices(event: Event) -> Event:
    """The event as it is written: a scheduler's choices are written even where there are none."""
    unknown = isinstance(event, Schedule) and event.chose is None
    return replace(event, chose=()) if unknown else event
