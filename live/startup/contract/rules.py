"""All rules of a start-up, the gravest first."""

from collections.abc import Iterator

import kvproof.live.startup.contract as room
from kvproof.live.startup.contract.rule import StartupRule
from kvproof.live.startup.seen import Startup
from kvproof.model.discovery import declared
from kvproof.model.finding import Finding

RULES: dict[str, StartupRule] = {
    rule.id: rule for rule in sorted(declared(room, "RULE"), key=lambda r: (r.severity, r.id))
}
"""The rules by id."""


def broken(start: Startup) -> Iterator[Finding]:
    """The findings of a start, the gravest first: of each rule the first."""
    for rule in RULES.values():
        if start.accepted or rule.of_all:
            for reasons, about in rule.judge(start):
                yield Finding(rule.id, reasons, about)
                break
