"""The result type of every strategy, and its exit code."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NoReturn

from kvproof.invariants.registry import severity_of
from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.finding import Finding
from kvproof.model.severity import FAIL_ON, Severity


class Verdict(Enum):
    """The result of a search. A search that was cut is UNKNOWN, never EXHAUSTED."""

    PROVED = "PROVED"
    EXHAUSTED = "EXHAUSTED"
    SAMPLED = "SAMPLED"
    VIOLATED = "VIOLATED"
    UNKNOWN = "UNKNOWN"

    @property
    def exit_code(self) -> int:
        """0 all hold, 1 violated, 3 unknown or not run. (2 is bad usage or input.)"""
        return {Verdict.VIOLATED: 1, Verdict.UNKNOWN: 3}.get(self, 0)

    def __bool__(self) -> NoReturn:
        raise TypeError("a verdict has no truth value: compare it by name")


INTERRUPTED = "interrupted"
"""The reason of an UNKNOWN verdict when the user stopped the search."""

NOT_TWICE = "the machine did not behave the same twice"
"""The reason of one when the same events led to another state."""

NOTHING_SCHEDULED = "nothing was scheduled, so no check has seen an engine at work"
"""The reason of an UNKNOWN verdict where no engine took a step."""

NOTHING_JUDGED = "no check that was asked had anything to judge"
"""The reason of an UNKNOWN verdict where engines took steps in which no check applies."""


@dataclass(frozen=True)
class Outcome:
    """A verdict with its evidence.

    `events` is the trace of a violation, with all choices filled in; the last event breaks
    `finding`. `cluster` is the cluster of the trace, with its jobs, if the search chose the jobs
    itself. `coverage` says what was examined; `reason` says why a verdict is UNKNOWN. `beside` is a
    less severe finding that was found too; of a violation that does not fail the run, `graver` is
    the outcome of the search for the more severe checks.
    """

    verdict: Verdict
    coverage: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    finding: Finding | None = None
    reason: str = ""
    seconds: float = 0.0
    cluster: Cluster | None = None
    beside: Finding | None = None
    graver: "Outcome | None" = None

    @property
    def severity(self) -> Severity | None:
        """The severity of the finding; None if there is no finding or its severity is unknown."""
        return None if self.finding is None else severity_of(self.finding)

    def tolerated(self, fail_on: Severity = FAIL_ON) -> bool:
        """Whether this is a violation that is less severe than `fail_on`."""
        return self.severity is not None and self.severity > fail_on

    def exit_code(self, fail_on: Severity = FAIL_ON) -> int:
        """The exit code of the verdict; 0 if its violation is tolerated."""
        return 0 if self.tolerated(fail_on) else self.verdict.exit_code


def earned(outcome: Outcome) -> Outcome:
    """Return the outcome of a search, or UNKNOWN where it would be green and no engine took a step,
    or no check had anything to judge."""
    if outcome.verdict not in (Verdict.EXHAUSTED, Verdict.SAMPLED):
        return outcome
    judged = outcome.coverage["judged"].values()
    if not outcome.coverage["events"].get("Schedule"):
        return replace(outcome, verdict=Verdict.UNKNOWN, reason=NOTHING_SCHEDULED)
    if judged and not any(judged):
        return replace(outcome, verdict=Verdict.UNKNOWN, reason=NOTHING_JUDGED)
    return outcome
