"""What `--json` prints: the run's own types as one JSON object, which begins with its version.

A record of any kind is an object with the names of its fields. Few things are printed otherwise:
a finding as its check, its severity and its sentences, a severity and a path as text.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from kvproof.invariants.check import FOUND
from kvproof.invariants.registry import severity_of
from kvproof.model.config import Cluster
from kvproof.model.files.reading import shown
from kvproof.model.finding import Finding, signature
from kvproof.model.severity import Severity
from kvproof.strategies.verdict import Outcome, Verdict

VERSION = 4
"""The version of all objects. A field that goes or changes its meaning makes another one."""


def document(command: str, code: int, fields: Any) -> str:
    """Return the object of a command as JSON text in ASCII, indented. `fields` is a record or a
    mapping."""
    begin = {"version": VERSION, "command": command, "exit_code": code}
    return json.dumps({**begin, **plain(fields), "exit_code": code}, indent=2)


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, Finding):
        return {
            "invariant": value.invariant,
            "severity": plain(severity_of(value)),
            "reasons": plain(value.sentences),
        }
    if isinstance(value, Severity):
        return value.words
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return shown(value)
    if isinstance(value, Struct):
        return to_builtins(value)
    if dataclasses.is_dataclass(value):
        names = (each.name for each in dataclasses.fields(value))
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def of_outcome(
    outcome: Outcome,
    *,
    cluster: Cluster | None = None,
    faults: Sequence[str] = (),
    machine: str = "model",
    seed: int = 0,
    trace: Path | None = None,
) -> dict[str, Any]:
    """Return the fields of an outcome: the verdict, of a violation what is broken, and what was
    covered. `trace` is the file that was written."""
    fields: dict[str, Any] = {
        "verdict": outcome.verdict,
        "config": cluster,
        "faults": tuple(faults),
        "machine": machine,
        "seed": seed,
        "seconds": round(outcome.seconds, 3),
    }
    if outcome.reason:
        fields["reason"] = outcome.reason
    if outcome.verdict is Verdict.VIOLATED:
        fields |= of_finding(outcome.finding)
        fields |= {
            "signature": _signature(cluster, outcome),
            "trace": trace,
            "trace_length": len(outcome.events),
        }
    fields |= outcome.coverage
    if outcome.beside is not None:
        fields["tolerated"] = outcome.beside
    if outcome.graver is not None:
        fields["otherwise"] = of_outcome(
            outcome.graver, cluster=cluster, faults=faults, machine=machine, seed=seed
        )
    return fields


def of_finding(finding: Finding | None) -> dict[str, Any]:
    """Return the fields of a finding, with what its check says must be true."""
    known = FOUND.get(finding.invariant) if finding else None
    return {
        "invariant": finding.invariant if finding else None,
        "must_be_true": known.name if known else None,
        "origin": known.origin if known else None,
        "severity": severity_of(finding) if finding else None,
        "reasons": finding.sentences if finding else (),
    }


def _signature(cluster: Cluster | None, outcome: Outcome) -> object:
    where = outcome.cluster or cluster
    if outcome.finding is None or where is None or not outcome.events:
        return None
    return signature(where, outcome.events[-1], outcome.finding)
