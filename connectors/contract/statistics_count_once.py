"""The hit rate of a prefix cache is what operators look at. A connector may have the scheduler ask
again later, and an admission may fail; a request is still one request (vllm#48860). One whose load
failed gives its blocks back and is looked up once more."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import CacheStatistics, Fact
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """Not more requests are counted than have arrived, and loads that failed."""
    if isinstance(fact, CacheStatistics) and fact.looked_up > fact.arrived + fact.failed:
        yield because(
            reason(
                "arrived",
                "{arrived} requests have arrived, and {failed} loads failed",
                arrived=fact.arrived,
                failed=fact.failed,
            ),
            reason(
                "counted",
                "the statistics of the {where} prefix cache count {counted} requests",
                where=fact.where,
                counted=fact.looked_up,
            ),
        )


RULE = ConnectorRule(
    id="statistics_count_once",
    name="the statistics of prefix caches count each request once",
    origin="PrefixCacheStats.record; vllm#48860",
    severity=Severity.WRONG_REPORT,
    counts="requests in statistics",
    otherwise="no statistics were made",
    judge=judge,
    apart="",  # the scheduler counts, whatever the connector does
)
