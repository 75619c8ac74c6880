"""All rules of the contract, the gravest first."""

from collections.abc import Iterable, Iterator

import kvproof.connectors.contract as room
from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.discovery import declared
from kvproof.model.facts.connectors import Fact
from kvproof.model.finding import Finding

RULES: dict[str, ConnectorRule] = {
    rule.id: rule for rule in sorted(declared(room, "RULE"), key=lambda r: (r.severity, r.id))
}
"""The rules by id."""


def broken(facts: Iterable[Fact], past: Past) -> Iterator[Finding]:
    """The findings of these facts, in order. The past grows by them."""
    for fact in facts:
        for rule in RULES.values():
            for judged in rule.judge(fact, past):
                yield Finding(rule.id, judged.reasons, judged.about)
        past.add(fact)
