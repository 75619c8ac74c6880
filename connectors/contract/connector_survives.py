"""An exception in the connector, or in the scheduler that follows its answers, ends the engine and
every request on it (vllm#46231, vllm#43281, vllm#42289)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past, message_of
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Died, Fact
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """No call of the engine raises an exception."""
    if isinstance(fact, Died):
        where = fact.death.function
        yield because(
            reason("connector_raised", "the connector raised an exception in {where}", where=where)
            if fact.in_connector
            else reason(
                "vllm_raised",
                "vLLM, with this connector, raised an exception in {where}",
                where=where,
            ),
            message_of(fact.death),
        )


RULE = ConnectorRule(
    id="connector_survives",
    name="no call of the connector, and none that follows its answers, raises an exception",
    origin="vllm#46231, vllm#43281",
    severity=Severity.CRASH,
    counts="steps",
    otherwise="no step was made",
    judge=judge,
)
