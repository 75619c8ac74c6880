"""What the output of every command with a verdict has, and how it is made of an outcome."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec import UNSET

from kvproof.invariants.registry import CHECKS, severity_of
from kvproof.model.config import Cluster
from kvproof.model.files.reading import shown
from kvproof.model.finding import Finding
from kvproof.model.severity import FAIL_ON, Severity
from kvproof.model.signature import signature
from kvproof.reports.output.base import Maybe, Output, OutputPart, VerdictName
from kvproof.strategies.verdict import OTHERWISE, TOLERATED, Consequence, Outcome, Verdict


class FaultName(OutputPart, frozen=True, kw_only=True):
    """A historical mistake that the model was given."""

    name: str


class SignatureObject(OutputPart, frozen=True, kw_only=True):
    """The signature of a finding. `feature` is the kind of cache group, or empty."""

    check: str
    event: str
    feature: str


class FindingOutput(OutputPart, frozen=True, kw_only=True):
    """A check that does not hold, and the reasons. `severity` is null if it is unknown."""

    invariant: str
    severity: str | None
    reasons: tuple[str, ...]


class LeadsTo(FindingOutput, frozen=True, kw_only=True):
    """The invariant that breaks `events` events after a guard was not met."""

    events: int


def finding_output(finding: Finding) -> FindingOutput:
    """A finding in sentences."""
    return FindingOutput(**_said(finding))


def _said(finding: Finding) -> dict[str, Any]:
    severity = severity_of(finding)
    return {
        "invariant": finding.invariant,
        "severity": severity.words if severity else None,
        "reasons": finding.sentences,
    }


class VerdictOutput(Output, frozen=True, kw_only=True):
    """A verdict. `config` is the cluster, null if there is none. `seconds` is wall time. `reason`
    says why the verdict is UNKNOWN.

    From `invariant` on, the fields are there if the verdict is VIOLATED. `must_be_true` and
    `origin` are null if the violation is neither of an invariant nor of a guard. `severity` is null
    if it is unknown. `signature` and `trace` are null if a violation has no events (a refuted
    obligation); `trace` is also null if its file could not be written.
    """

    verdict: VerdictName
    config: Cluster | None
    faults: tuple[FaultName, ...]
    machine: Literal["model", "live", "none"]
    seed: int
    seconds: float
    reason: Maybe[str] = UNSET
    invariant: Maybe[str | None] = UNSET
    must_be_true: Maybe[str | None] = UNSET
    origin: Maybe[str | None] = UNSET
    severity: Maybe[str | None] = UNSET
    reasons: Maybe[tuple[str, ...]] = UNSET
    signature: Maybe[SignatureObject | None] = UNSET
    trace: Maybe[str | None] = UNSET
    trace_length: Maybe[int] = UNSET
    leads_to: Maybe[LeadsTo | None] = UNSET


Kind = TypeVar("Kind", bound=VerdictOutput)


def verdict_output(
    kind: type[Kind],
    outcome: Outcome,
    *,
    code: int | None = None,
    cluster: Cluster | None = None,
    faults: Sequence[str] = (),
    machine: str = "model",
    seed: int = 0,
    trace: Path | None = None,
    fail_on: Severity = FAIL_ON,
    more: Mapping[str, Any] | None = None,
) -> Kind:
    """The output of this kind for an outcome. What the outcome covered has fields of its own, which
    the kind declares, and so has `more`, which comes first.

    `code` is the exit code of the process, by default that of the outcome. `trace` is the file that
    was written.
    """
    fields: dict[str, Any] = {
        "exit_code": outcome.exit_code(fail_on) if code is None else code,
        "verdict": outcome.verdict.value,
        "config": cluster,
        "faults": tuple(FaultName(name=name) for name in faults),
        "machine": machine,
        "seed": seed,
        "seconds": round(outcome.seconds, 3),
    }
    if outcome.reason:
        fields["reason"] = outcome.reason
    if outcome.verdict is Verdict.VIOLATED:
        fields |= _violation(cluster, outcome)
        fields["trace"] = None if trace is None else shown(trace)
    covered = dict(outcome.coverage)
    if TOLERATED in covered:
        covered[TOLERATED] = finding_output(covered[TOLERATED])
    if OTHERWISE in covered:
        graver = covered[OTHERWISE]
        covered[OTHERWISE] = verdict_output(
            kind, graver, cluster=cluster, faults=faults, machine=machine, seed=seed
        )
    return kind(**{**covered, **fields, **(more or {})})


def _violation(cluster: Cluster | None, outcome: Outcome) -> dict[str, Any]:
    finding = outcome.finding
    known = CHECKS.get(finding.invariant) if finding else None
    return {
        "invariant": finding.invariant if finding else None,
        "must_be_true": known.name if known else None,
        "origin": known.origin if known else None,
        "severity": outcome.severity.words if outcome.severity else None,
        "reasons": finding.sentences if finding else (),
        "signature": _signature(cluster, outcome),
        "trace_length": len(outcome.events),
        "leads_to": _leads_to(outcome.leads_to),
    }


def _signature(cluster: Cluster | None, outcome: Outcome) -> SignatureObject | None:
    where = outcome.cluster or cluster
    if outcome.finding is None or where is None or not outcome.events:
        return None
    of = signature(where, outcome.events[-1], outcome.finding)
    return SignatureObject(**of._asdict())


def _leads_to(later: Consequence | None) -> LeadsTo | None:
    return None if later is None else LeadsTo(events=later.events, **_said(later.finding))
