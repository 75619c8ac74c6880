"""`reset_cache` is called when what is stored has become wrong: after an update of the weights. A
connector that says that it has reset its cache, and then offers a prefix that was stored before,
gives answers of the old weights."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, Remembered
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """Nothing is offered after a reset and before a step."""
    if isinstance(fact, Remembered):
        yield because(
            reason(
                "was_reset",
                "an idle engine reset the connector's cache, and nothing was computed since",
            ),
            reason(
                "offers", "the connector offers {tokens} tokens of {request}", tokens=fact.tokens
            ),
            request=fact.request,
        )


RULE = ConnectorRule(
    id="reset_forgets",
    name="after a reset of its cache, a connector offers nothing that was stored before",
    origin="reset_cache; Scheduler.reset_connector_cache",
    severity=Severity.WRONG_TOKENS,
    counts="answers after a reset",
    otherwise="it did not say that it has reset its cache",
    judge=judge,
    apart="connectors",
)
