"""How a finding counts for a CI system: as an error, a warning or a note."""

from typing import Literal

from kvproof.gate.formats.sentences import SEVERITIES
from kvproof.model.severity import Severity
from kvproof.reports.output.gate import GateFinding

Level = Literal["error", "warning", "note"]

LEVELS: dict[Severity, Level] = {
    Severity.WRONG_TOKENS: "error",
    Severity.CRASH: "error",
    Severity.HANG: "error",
    Severity.LEAK: "warning",
    Severity.LOST_PERFORMANCE: "warning",
    Severity.WRONG_REPORT: "warning",
    Severity.BOOKKEEPING: "note",
}


def level(finding: GateFinding) -> Level:
    """The level of a finding by its severity. An unknown severity is an error, never less."""
    severity = SEVERITIES.get(finding.severity)
    return "error" if severity is None else LEVELS[severity]
