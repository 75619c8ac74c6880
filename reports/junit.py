"""JUnit XML for CI systems. A violation is a failure, unless it is less severe than `fail_on`: then
the output reports it. A check that is unknown or was not run is an error, never a skip and never a
pass."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kvproof.invariants.registry import CHECKS
from kvproof.model.events import describe
from kvproof.model.files.writing import write_new
from kvproof.model.severity import FAIL_ON, Severity
from kvproof.reports.xml_text import xml_text
from kvproof.strategies.verdict import Outcome, Verdict

DECLARATION = '<?xml version="1.0" encoding="utf-8"?>'


class Case(NamedTuple):
    """One check and its outcome."""

    name: str
    outcome: Outcome
    fail_on: Severity = FAIL_ON

    @property
    def fails(self) -> bool:
        """Whether the case is a failure in the report."""
        return self.outcome.verdict is Verdict.VIOLATED and not self.outcome.tolerated(self.fail_on)


def document(suite: str, cases: Sequence[Case]) -> str:
    """The checks as one test suite."""
    verdicts = [case.outcome.verdict for case in cases]
    root = ET.Element(
        "testsuite",
        name=suite,
        tests=str(len(cases)),
        failures=str(sum(case.fails for case in cases)),
        errors=str(verdicts.count(Verdict.UNKNOWN)),
        skipped="0",
        time=f"{sum(case.outcome.seconds for case in cases):.3f}",
    )
    for case in cases:
        _add(root, suite, case)
    ET.indent(root)
    return f"{DECLARATION}\n{xml_text(ET.tostring(root, encoding='unicode'))}\n"


def write(path: Path, suite: str, cases: Sequence[Case]) -> None:
    """Write a new file. Raises UsageError if it exists or cannot be written."""
    write_new(path, document(suite, cases))


def _add(root: ET.Element, suite: str, case: Case) -> None:
    outcome = case.outcome
    time = f"{outcome.seconds:.3f}"
    element = ET.SubElement(root, "testcase", classname=suite, name=case.name, time=time)
    finding = outcome.finding
    text = f"{finding.invariant}: {finding.sentence}" if finding else outcome.reason
    grave = f" ({outcome.severity.words})" if outcome.severity else ""
    if case.fails:
        failure = ET.SubElement(element, "failure", message=text + grave, type="VIOLATED")
        failure.text = "\n".join([*_beside(outcome), *map(describe, outcome.events)])
    if outcome.verdict is Verdict.UNKNOWN:
        ET.SubElement(element, "error", message=outcome.reason, type="UNKNOWN")
    covered = ", ".join(f"{name} {value}" for name, value in outcome.coverage.items())
    out = ET.SubElement(element, "system-out")
    tolerated = f" {text}{grave}," if outcome.tolerated(case.fail_on) else ""
    out.text = f"{outcome.verdict.value}{tolerated} {covered}".strip()


def _beside(outcome: Outcome) -> Iterator[str]:
    """The sentence that must be true and is not, and its consequence, one line each."""
    known = CHECKS.get(outcome.finding.invariant) if outcome.finding else None
    if known is not None:
        yield f"It must be true that {known.name} ({known.origin})."
    if outcome.leads_to is not None:
        yield outcome.leads_to.sentence
