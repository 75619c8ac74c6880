"""All rules of a start-up, the gravest first."""

from collections.abc import Iterator

import kvproof.live.startup.contract as room
from kvproof.live.rule import EngineRule, findings, rules_of
from kvproof.model.facts.startup import Startup
from kvproof.model.finding import Finding

RULES: dict[str, EngineRule[Startup]] = rules_of(room)
"""The rules by id."""


def broken(start: Startup) -> Iterator[Finding]:
    """The findings of a start, the gravest first: of each rule the first."""
    return findings(RULES.values(), start, lives=start.accepted)
