"""All rules of the loop, the gravest first."""

from collections.abc import Iterator

import kvproof.live.loop.contract as room
from kvproof.live.rule import EngineRule, findings, rules_of
from kvproof.model.facts.loop import Played
from kvproof.model.finding import Finding

RULES: dict[str, EngineRule[Played]] = rules_of(room)
"""The rules by id."""


def broken(played: Played) -> Iterator[Finding]:
    """The findings of a play, the gravest first: of each rule the first."""
    return findings(RULES.values(), played, lives=not played.died)
