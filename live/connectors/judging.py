"""The checks of what a connector does: the contract. And whose KV it is where tokens are right and
the rank, the adapter or the salt is another one."""

from collections.abc import Iterator, Sequence
from typing import get_args

from kvproof.invariants.check import Check, Tally, broken_by
from kvproof.invariants.registry import checks_of
from kvproof.model.because import Reason
from kvproof.model.facts.connectors import COUNTED, Fact, Past
from kvproof.model.finding import Finding
from kvproof.model.plans.connector import Beside

CONTRACT: dict[str, Check] = {check.id: check for check in checks_of(*get_args(Fact))}
"""The checks by id, the gravest first."""

ASKED: dict[type, tuple[Check, ...]] = {kind: checks_of(kind) for kind in get_args(Fact)}
"""The checks of each kind of facts, the gravest first."""


def broken(facts: Sequence[Fact], past: Past, tally: Tally | None = None) -> Iterator[Finding]:
    """The findings of these facts, in order. Each fact is added to the past."""
    for fact in facts:
        yield from broken_by(ASKED[type(fact)], fact, tally, past=past)
        past.add(fact)


def subjects(check: Check) -> list[str]:
    """The names under which a run counts the things that a check judges."""
    return [*dict.fromkeys(COUNTED[kind] for kind in check.judged if kind in COUNTED)]


MARKS = tuple(f"{each}:" for each in get_args(Beside) if each)
"""The text in front of the tokens of a request with an adapter or a salt."""


def mixed_up(finding: Finding) -> str:
    """Say to which other rank, adapter or salt the KV in a slot belongs, if it is that of the right
    tokens. Empty for any other KV."""
    values = [value for each in finding.reasons for value in each.facts.values()]
    held = [value for value in values if isinstance(value, Reason) and "tokens" in value.facts]
    if any(each.kind == "another_rank" for each in held):
        return "another rank's KV"
    if len(held) < 2:
        return ""
    (right, tokens), (found, others) = (_parts(str(each.facts["tokens"])) for each in held[:2])
    if tokens != others or right == found:
        return ""
    return "another adapter's KV" if "lora:" in right + found else "another salt's KV"


def _parts(prefix: str) -> tuple[str, str]:
    """The adapter or salt of KV, and the rest of its prefix. A prompt may contain a colon too."""
    for mark in MARKS:
        before, found, tokens = prefix.partition(mark)
        if found:
            return mark, before + tokens
    return "", prefix
