"""A finding that does not fail the run must not hide one that does. If a search ends with such a
finding, it is run again for the more severe invariants alone."""

import dataclasses
from collections.abc import Callable, Iterable

from kvproof.cli.parser import Setup
from kvproof.invariants.check import Check
from kvproof.model.severity import Severity
from kvproof.strategies.verdict import Outcome, Verdict


def with_graver(
    found: Outcome,
    setup: Setup,
    fail_on: Severity,
    search: Callable[[Setup], Outcome],
    checks: Iterable[Check],
) -> Outcome:
    """Return the outcome of a search, or of a second search for the more severe invariants.

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
        return dataclasses.replace(second, beside=found.finding)
    return dataclasses.replace(found, graver=second)


def tolerated_lines(outcome: Outcome, fail_on: Severity) -> list[str]:
    """Return the line about a violation that does not fail the run; none if there is no such
    violation."""
    if outcome.severity is not None and outcome.tolerated(fail_on):
        graver = outcome.graver
        rest = (
            f" A search for more severe ones found none ({graver.verdict.value})." if graver else ""
        )
        return [
            f"The severity of this violation is {outcome.severity.words}, which does not "
            f"fail the run (--fail-on {fail_on.option}).{rest}"
        ]
    beside = outcome.beside
    return [f"also found: {beside.invariant}, {beside.sentences[-1]}"] if beside else []
