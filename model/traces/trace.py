"""Traces as files: JSON Lines, one record a line, with a schema version.

The header has the cluster and the machine. Then each event has one line, with its changes of the
state (see `state_diff`; left out where the states could not be recorded). Then come the finding, if
there is one, and an end record with the number of events: a file without an end record was cut off.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

import kvproof
from kvproof.model.config import Cluster, config_json
from kvproof.model.errors import UsageError
from kvproof.model.events import Event, Schedule
from kvproof.model.files.writing import write_new
from kvproof.model.finding import Finding
from kvproof.model.reference.apply import initial
from kvproof.model.traces.state_diff import Change, Flat, flat, patched

SCHEMA = 3
KIND = "kvproof-trace"


@dataclass(frozen=True)
class Trace:
    """A run that can be replayed. `changes` has one entry per event, or is None.

    `vllm` is the release of vLLM that a live trace was recorded with. The state before the first
    event is the initial state of the cluster.
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

    def states(self) -> list[Flat]:
        """The state before the first event and after each event. Empty where no states were
        recorded."""
        if self.changes is None:
            return []
        states = [flat(initial(self.cluster))]
        for change in self.changes:
            states.append(patched(states[-1], change))
        return states


def fresh_path(folder: Path, stem: str) -> Path:
    """A file in `folder` that does not exist yet: `stem.jsonl`, then `stem-2.jsonl`, and so on.

    Raises UsageError where the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"The folder {folder} cannot be created ({error.strerror}). "
            "Use a folder that you may write to."
        ) from error
    path, number = folder / f"{stem}.jsonl", 1
    while path.exists():
        number += 1
        path = folder / f"{stem}-{number}.jsonl"
    return path


def write(path: Path, trace: Trace) -> None:
    """Write a new file. Raises UsageError where it exists or cannot be written."""
    write_new(path, "".join(json.dumps(record) + "\n" for record in records(trace)))


def records(trace: Trace) -> list[dict[str, Any]]:
    """The lines of a trace file as plain data."""
    header: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": KIND,
        "config": config_json.to_json(trace.cluster),
        "faults": list(trace.faults),
        "machine": trace.machine,
        "versions": {"kvproof": trace.kvproof, "vllm": trace.vllm},
        "seed": trace.seed,
    }
    lines = [header]
    for index, event in enumerate(trace.events):
        line: dict[str, Any] = {"step": index + 1, "event": _written(event)}
        if trace.changes is not None:
            changed, removed = trace.changes[index]
            line |= {"changed": changed, "removed": list(removed)}
        lines.append(line)
    if trace.finding is not None:
        finding = trace.finding
        found: dict[str, Any] = {"invariant": finding.invariant, "reasons": list(finding.reasons)}
        lines.append({"finding": found | {"about": to_builtins(finding.about)}})
    lines.append({"end": {"steps": len(trace.events)}})
    return lines


def _written(event: Event) -> Any:
    """An event as plain data. The choices of a scheduler are always written, as a list."""
    if isinstance(event, Schedule) and event.chose is None:
        event = replace(event, chose=())
    return to_builtins(event)
