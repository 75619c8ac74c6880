"""Engines come and go: a router starts others where some have ended. What a connector keeps of an
engine that is gone fills the memory of the host (vllm#44424). It may keep it for some time
(`engine_ttl` of NIXL), and until it meets the engine that took the place."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import EngineKnown, Fact
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """Nothing is known of an engine that is gone for long, after a load from the next one."""
    if isinstance(fact, EngineKnown):
        yield because(
            reason(
                "gone",
                "an engine ended {gone_s} s before the next one in its place began",
                gone_s=fact.gone_s,
            ),
            reason("known", "after a load from that one, {where} still has it", where=fact.where),
        )


RULE = ConnectorRule(
    id="gone_engines_are_forgotten",
    name="a connector forgets an engine that is gone for long when it has met the next one",
    origin="engine_ttl of NIXL; vllm#44424",
    severity=Severity.LEAK,
    counts="engines that were gone for long",
    otherwise="no engine was gone for long when another one was met in its place",
    judge=judge,
)
