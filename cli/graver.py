"""A finding that does not fail the run must not hide one that does. If a search ends with such a
finding, it is run again for the more severe invariants alone."""

import dataclasses
from collections.abc import Callable, Iterable

from kvproof.cli.parser import Setup
from kvproof.invariants.invariant import Invariant
from kvproof.model.severity import Severity
from kvproof.reports.output.search import OtherwiseExplored, OtherwiseSampled, Tolerated
from kvproof.strategies.verdict import Outcome, Verdict

TOLERATED = "tolerated"
"""The key under which the coverage of the more severe result has the tolerated finding."""

OTHERWISE = "otherwise"
"""The key under which the coverage of a tolerated violation has the search for the more severe
invariants."""


def with_graver(
    found: Outcome,
    setup: Setup,
    fail_on: Severity,
    search: Callable[[Setup], Outcome],
    checks: Iterable[Invariant],
) -> Outcome:
    """The outcome of a search, or of the search for the more severe invariants.

    The second search counts if `found` is tolerated and the second search finds a violation or is
    incomplete. `checks` are the invariants of a search without --invariant.
    """
    if found.finding is None or not found.tolerated(fail_on):
        return found
    chosen = setup.invariants or checks
    grave = [i for i in chosen if i.severity is None or i.severity <= fail_on]
    if not grave:
        return found
    second = search(setup._replace(invariants=grave))
    if second.verdict in (Verdict.VIOLATED, Verdict.UNKNOWN):
        beside = Tolerated(invariant=found.finding.invariant, reasons=found.finding.sentences)
        return dataclasses.replace(second, coverage={**second.coverage, TOLERATED: beside})
    kind = OtherwiseExplored if "states_distinct" in second.coverage else OtherwiseSampled
    otherwise = kind(verdict=second.verdict.value, seconds=second.seconds, **second.coverage)
    return dataclasses.replace(found, coverage={**found.coverage, OTHERWISE: otherwise})


def tolerated_lines(outcome: Outcome, fail_on: Severity) -> list[str]:
    """The line about a violation that does not fail the run; none if there is no such violation."""
    if outcome.severity is not None and outcome.tolerated(fail_on):
        graver = outcome.coverage.get(OTHERWISE)
        rest = f" A search for more severe ones found none ({graver.verdict})." if graver else ""
        return [
            f"The severity of this violation is {outcome.severity.words}, which does not "
            f"fail the run (--fail-on {fail_on.option}).{rest}"
        ]
    beside = outcome.coverage.get(TOLERATED)
    return [f"also found: {beside.invariant}, {beside.reasons[-1]}"] if beside else []
