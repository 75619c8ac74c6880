"""Memory of a host has a name in shared memory, and a store a client with memory of its own. Who
shuts an engine down and starts another one has both twice if they stay (vllm#45206)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, LeftOpen
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """Nothing stays open after both sides of a connector are shut down."""
    if isinstance(fact, LeftOpen):
        yield because(
            reason("ended", "the workers and the scheduler were shut down"),
            reason("open", "{what}: {number} still open", what=fact.what, number=fact.number),
        )


RULE = ConnectorRule(
    id="closed_at_shutdown",
    name="what a connector opened beside the engine is closed when both its sides are shut down",
    origin="shutdown; vllm#45206",
    severity=Severity.LEAK,
    counts="files and clients that were opened",
    otherwise="it opened no file in shared memory and no client of a store",
    judge=judge,
)
