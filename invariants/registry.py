"""All checks. A new one is a function of a module in this folder (see `check`), and a new module is
found by itself."""

from collections.abc import Collection, Iterable, Mapping

import kvproof.invariants as room
from kvproof.invariants.check import FOUND, Check, Ending
from kvproof.invariants.of_bytes import SEVERITIES
from kvproof.model.discovery import modules
from kvproof.model.errors import UsageError, unknown
from kvproof.model.finding import Finding
from kvproof.model.needs import Need
from kvproof.model.severity import FAIL_ON, Severity
from kvproof.model.state import Engine, State
from kvproof.model.step import Step

modules(room)  # each declares its checks when it is imported


def checks_of(*kinds: type) -> tuple[Check, ...]:
    """The checks that judge one of these types, the gravest first."""
    found = (each for each in FOUND.values() if not set(kinds).isdisjoint(each.judged))
    return tuple(sorted(found, key=lambda each: (each.severity, each.id)))


_OF_RUNS = checks_of(Engine, State, Step, Ending)

INVARIANTS: dict[str, Check] = {each.id: each for each in _OF_RUNS if not each.part}
"""What must be true of each engine, state, step and end of a run, by id: the gravest first, and
those alike in the order of the alphabet."""

GUARDS: dict[str, Check] = {
    each.id: each for each in sorted(_OF_RUNS, key=lambda each: each.id) if each.part
}
"""The guards by id. A guard judges one step: the state before, the event with its choices, and the
state after. It makes no choice itself. It permits every alternative that vLLM may choose: which
free block is taken, which request is preempted, how long a chunk is, when a block is cached."""

CHECKS: dict[str, Check] = INVARIANTS | GUARDS
"""All checks of a run: the invariants, and then the guards."""


FORMER = {
    "connector_survives": "engine_survives",
    "idle_engine_holds_no_block": "all_blocks_return",
    "loop_survives": "engine_survives",
    "start_up_survives": "engine_survives",
}
"""The ids that checks had before they were merged with others, and the ids that they have now."""


def check_named(name: str) -> Check:
    """The invariant or guard of this id. Raises UsageError with the nearest id, or the present id
    of a former one."""
    if name in FORMER:
        raise UsageError(f"The check {name} is a part of {FORMER[name]} now. Use {FORMER[name]}.")
    if name not in CHECKS:
        raise unknown("invariant", name, CHECKS)
    return CHECKS[name]


def lacking(check: Check, *views: Collection[Need]) -> str:
    """What a check needs and no view shows, in words. Empty if one view shows all of it."""
    if any(set(view).issuperset(check.needs) for view in views):
        return ""
    nowhere = [n for n in check.needs if not any(n in view for view in views)]
    words = " and ".join(need.value for need in nowhere or check.needs)
    return words if nowhere else f"{words} at once"


def why_hidden(check: Check, hidden: Mapping[Need, str]) -> str:
    """Why a check is not asked where some facts are hidden; `hidden` has a reason for each. Empty
    if it is asked."""
    return next((hidden[need] for need in check.needs if need in hidden), "")


def severity_of(finding: Finding) -> Severity | None:
    """The severity of a finding. None if it is not of a check (a refuted obligation, or a step that
    the proofs do not have), because its effect on a user is unknown."""
    known = FOUND.get(finding.invariant)
    return SEVERITIES.get(finding.invariant) if known is None else known.severity


def gravest(findings: Iterable[Finding]) -> list[Finding]:
    """The findings of one step, the first to report in front.

    Findings that are a leak or more severe come before the others. In each half, invariants come
    before guards, because an invariant says what is wrong and a guard says how it happened. Then
    the more severe finding comes first, and findings of equal severity keep the order of the
    registry. A finding without a severity comes after a leak: a named finding is more useful, and
    lost time must not hide it.
    """
    order = [*CHECKS, *FOUND, *SEVERITIES]

    def rank(finding: Finding) -> tuple[float, ...]:
        severity = severity_of(finding)
        if severity is None:
            return 1, 0, 0, 0
        later = 0 if severity <= FAIL_ON else 2
        known = CHECKS.get(finding.invariant)
        guard = known is not None and known.kind == "guard"
        return later, guard, severity, order.index(finding.invariant)

    return sorted(findings, key=rank)
