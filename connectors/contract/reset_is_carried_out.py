"""A reset of the connector's cache that raises an exception is not carried out: the engine answers
the call with the error and goes on, and the connector still offers what a user wanted to be gone. A
connector that cannot reset its cache says so (`NotImplementedError`)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past, message_of
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, ResetRaised
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """No reset raises an exception."""
    if isinstance(fact, ResetRaised):
        yield because(
            reason(
                "reset_raised", "a reset raised an exception in {where}", where=fact.death.function
            ),
            message_of(fact.death),
        )


RULE = ConnectorRule(
    id="reset_is_carried_out",
    name="a reset of the connector's cache raises no exception",
    origin="EngineCore.reset_prefix_cache; vllm#48102",
    severity=Severity.WRONG_REPORT,
    counts="resets",
    otherwise="its cache was not reset",
    judge=judge,
    apart="connectors",
)
