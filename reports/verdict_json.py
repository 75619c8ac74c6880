"""The JSON object that `--json` prints for an outcome."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvproof.invariants.registry import CHECKS, severity_of
from kvproof.model.config import Cluster, config_json
from kvproof.model.files.reading import shown
from kvproof.model.severity import FAIL_ON, Severity
from kvproof.model.signature import signature
from kvproof.strategies.verdict import Consequence, Outcome, Verdict


def verdict_object(
    command: str,
    outcome: Outcome,
    *,
    cluster: Cluster | None = None,
    faults: Iterable[str] = (),
    machine: str = "model",
    seed: int = 0,
    trace: Path | None = None,
    fail_on: Severity = FAIL_ON,
) -> dict[str, Any]:
    """The outcome as plain data; the fields of the coverage are at the same level as the verdict.

    `seconds` is wall time. `trace` is the file that was written; `trace` and `signature` are null
    if a violation has no events (a refuted obligation). `severity` is null if it is unknown.
    `must_be_true` and `origin` are null if the violation is neither of an invariant nor of a guard.
    `leads_to` is the invariant that breaks after a guard was not met.
    """
    record: dict[str, Any] = {
        "command": command,
        "verdict": outcome.verdict.value,
        "exit_code": outcome.exit_code(fail_on),
        "config": None if cluster is None else config_json.to_json(cluster),
        "faults": [{"name": name} for name in faults],
        "machine": machine,
        "seed": seed,
        "seconds": round(outcome.seconds, 3),
    }
    record |= {name: value for name, value in outcome.coverage.items() if name not in record}
    if outcome.reason:
        record["reason"] = outcome.reason
    if outcome.verdict is Verdict.VIOLATED:
        finding = outcome.finding
        known = CHECKS.get(finding.invariant) if finding else None
        record["invariant"] = finding.invariant if finding else None
        record["must_be_true"] = known.name if known else None
        record["origin"] = known.origin if known else None
        record["severity"] = outcome.severity.words if outcome.severity else None
        record["reasons"] = list(finding.reasons) if finding else []
        record["signature"] = _signature(cluster, outcome)
        record["trace"] = None if trace is None else shown(trace)
        record["trace_length"] = len(outcome.events)
        record["leads_to"] = _leads_to(outcome.leads_to)
    return record


def _signature(cluster: Cluster | None, outcome: Outcome) -> dict[str, str] | None:
    where = outcome.cluster or cluster
    if outcome.finding is None or where is None or not outcome.events:
        return None
    found = outcome.finding
    return signature(where, outcome.events[-1], found.invariant, found.about)._asdict()


def _leads_to(later: Consequence | None) -> dict[str, Any] | None:
    if later is None:
        return None
    severity = severity_of(later.finding)
    return {
        "events": later.events,
        "invariant": later.finding.invariant,
        "severity": severity.words if severity else None,
        "reasons": list(later.finding.reasons),
    }
