"""A tier keeps something for each request from its beginning to its end. The end of a request of
which it was never notified finds nothing there (vllm#46284)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, NeverBegun
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """The end of a request follows its beginning."""
    if isinstance(fact, NeverBegun):
        yield because(
            reason("never", "{tier} was never notified of {request}", tier=fact.tier),
            reason("ended", "it is notified that the request ended"),
            request=fact.request,
        )


RULE = ConnectorRule(
    id="tier_is_notified_of_the_request",
    name="a tier of a store that is notified of the end of a request was notified of the request",
    origin="OffloadingManager, SecondaryTierManager: on_new_request; vllm#46284",
    severity=Severity.LEAK,
    counts="notified ends of requests",
    otherwise="it has no tier of vLLM's kind",
    judge=judge,
)
