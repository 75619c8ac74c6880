"""A finding that does not fail the run must not hide one that would: where a search ends with the
first, it is made again for the graver invariants alone."""

import dataclasses
from collections.abc import Callable, Iterable

from kvproof.cli.parser import Setup
from kvproof.invariants.invariant import Invariant
from kvproof.model.severity import Severity
from kvproof.strategies.verdict import Outcome, Verdict

TOLERATED = "tolerated"
"""Where the coverage of a graver answer tells the finding that was there beside it."""

OTHERWISE = "otherwise"
"""Where the coverage of a tolerated violation tells what the search found for the graver ones."""


def with_graver(
    found: Outcome,
    setup: Setup,
    fail_on: Severity,
    search: Callable[[Setup], Outcome],
    checks: Iterable[Invariant],
) -> Outcome:
    """The outcome of a search, or of one for the graver invariants where `found` is tolerated and
    they break, or the search for them is not whole. `checks` are what is asked where no invariants
    are asked for by name."""
    if found.finding is None or not found.tolerated(fail_on):
        return found
    asked = setup.invariants or checks
    grave = [i for i in asked if i.severity is None or i.severity <= fail_on]
    if not grave:
        return found
    second = search(setup._replace(invariants=grave))
    if second.verdict in (Verdict.VIOLATED, Verdict.UNKNOWN):
        beside = {"invariant": found.finding.invariant, "reasons": list(found.finding.reasons)}
        return dataclasses.replace(second, coverage={**second.coverage, TOLERATED: beside})
    otherwise = {"verdict": second.verdict.value, "seconds": second.seconds, **second.coverage}
    return dataclasses.replace(found, coverage={**found.coverage, OTHERWISE: otherwise})


def told(outcome: Outcome, fail_on: Severity) -> str:
    """What is to be said of a violation that does not fail the run, in one line; nothing where
    there is none."""
    if outcome.severity is not None and outcome.tolerated(fail_on):
        graver = outcome.coverage.get(OTHERWISE)
        rest = f" The search for what does: {graver['verdict']}." if graver else ""
        return (
            f"This is {outcome.severity.words}, which does not fail the run "
            f"(--fail-on {fail_on.option}).{rest}\n"
        )
    beside = outcome.coverage.get(TOLERATED)
    return f"found beside it: {beside['invariant']}, {beside['reasons'][-1]}\n" if beside else ""
