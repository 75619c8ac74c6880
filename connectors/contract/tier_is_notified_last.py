"""When a tier is notified that a request has ended, it drops what it keeps for that request. What
is submitted after that makes it anew, and nobody ends it (vllm#45823)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, NotifiedTooEarly
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """Nothing is submitted for a request after its end."""
    if isinstance(fact, NotifiedTooEarly):
        yield because(
            reason(
                "notified_of_end", "{tier} was notified that {request} has ended", tier=fact.tier
            ),
            reason("submits", "then {call} is called for it", call=fact.call),
            request=fact.request,
        )


RULE = ConnectorRule(
    id="tier_is_notified_last",
    name="a tier of a store is notified of the end of a request after all that is submitted for it",
    origin="OffloadingManager, SecondaryTierManager: on_request_finished; vllm#45823",
    severity=Severity.LEAK,
    counts="notified ends of requests",
    otherwise="it has no tier of vLLM's kind",
    judge=judge,
)
