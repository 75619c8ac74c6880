"""A tier keeps something for each request of which it was notified. Without a notice of its end, it
keeps it for ever."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, NeverNotified
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """An idle engine has notified its tiers of the end of each request."""
    if isinstance(fact, NeverNotified):
        yield because(
            reason("notified", "{tier} was notified of {request}", tier=fact.tier),
            reason("never", "the engine is idle, and it was not notified that the request ended"),
            request=fact.request,
        )


RULE = ConnectorRule(
    id="tier_is_notified_of_the_end",
    name="a tier of a store that was notified of a request is notified of its end",
    origin="OffloadingManager, SecondaryTierManager: on_new_request, on_request_finished",
    severity=Severity.LEAK,
    counts="notified ends of requests",
    otherwise="it has no tier of vLLM's kind",
    judge=judge,
)
