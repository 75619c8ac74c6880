"""All rules of the loop, the gravest first."""

from collections.abc import Iterator

import kvproof.live.loop.contract as room
from kvproof.live.loop.contract.rule import LoopRule
from kvproof.live.loop.seen import Played
from kvproof.model.discovery import declared
from kvproof.model.finding import Finding

RULES: dict[str, LoopRule] = {
    rule.id: rule for rule in sorted(declared(room, "RULE"), key=lambda r: (r.severity, r.id))
}
"""The rules by id."""


def broken(played: Played) -> Iterator[Finding]:
    """The findings of a play, the gravest first: of each rule the first."""
    for rule in RULES.values():
        if not played.died or rule.of_dead:
            for reasons, about in rule.judge(played):
                yield Finding(rule.id, reasons, about)
                break
