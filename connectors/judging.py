"""The checks of what a connector does: the contract."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import get_args

from kvproof.invariants.check import Check, Tally, broken_by
from kvproof.invariants.registry import checks_of
from kvproof.model.facts.connectors import COUNTED, LOOKED_AT, Fact, Past
from kvproof.model.finding import Finding

CONTRACT: dict[str, Check] = {check.id: check for check in checks_of(*get_args(Fact))}
"""The checks by id, the gravest first."""


def broken(facts: Sequence[Fact], past: Past, tally: Tally | None = None) -> Iterator[Finding]:
    """The findings of these facts, in order. Each fact is added to the past."""
    asked = {kind: checks_of(kind) for kind in {*map(type, facts)}}
    for fact in facts:
        yield from broken_by(asked[type(fact)], fact, tally, past=past)
        past.add(fact)


def times_judged(tally: Tally, looked_at: Counter[str]) -> Counter[str]:
    """How often each check had something to judge, by id. For checks whose facts exist only if
    something is wrong, `looked_at` has the counts of the run."""
    judged: Counter[str] = Counter()
    for check in CONTRACT.values():
        names = {LOOKED_AT[kind] for kind in check.judged if kind in LOOKED_AT}
        seen = sum(looked_at[name] for name in names)
        judged[check.id] = seen if names else tally.judged[check.id]
    return judged


def subjects(check: Check) -> list[str]:
    """The names under which a run counts the things that a check judges."""
    known = LOOKED_AT | COUNTED
    return [*dict.fromkeys(known[kind] for kind in check.judged if kind in known)]
