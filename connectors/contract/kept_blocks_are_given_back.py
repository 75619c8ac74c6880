"""With `request_finished`, a connector may keep the blocks of a request that has ended, until it
reports the end of the send. If it never does, the pool loses these blocks for ever (vllm#42611,
vllm#43742, vllm#53903)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, Owed, Waits
from kvproof.model.severity import Severity


def judge(fact: Fact, past: Past) -> Iterator[Because]:
    """An engine that has nothing more to do has all its blocks."""
    if isinstance(fact, Waits) and fact.status.startswith("FINISHED"):
        kept = (
            reason("connector_keeps", "the connector keeps its blocks")
            if fact.request in past.sends
            else reason("has_blocks", "it has blocks")
        )
        yield because(
            reason(
                "ended",
                "{request} has ended ({status}), and {kept}",
                status=fact.status,
                kept=kept,
            ),
            reason(
                "no_report",
                "{steps} steps brought no report of the end of its transfer",
                steps=fact.steps,
            ),
            request=fact.request,
        )
    elif isinstance(fact, Owed):
        yield because(
            reason("goes_on", "{steps} steps without any request brought no end", steps=fact.steps)
            if fact.steps
            else reason("nothing_to_do", "the engine says that it has nothing more to do"),
            reason(
                "blocks_kept",
                "{blocks} of its blocks are not free; {keepers:names} has them",
                blocks=fact.blocks,
                keepers=(*fact.holders, *sorted(past.sends)),
            ),
        )


RULE = ConnectorRule(
    id="kept_blocks_are_given_back",
    name="when nothing more arrives, every block is free at last",
    origin="request_finished, get_finished; vllm#42611, vllm#43742",
    severity=Severity.LEAK,
    counts="kept requests",
    otherwise="it kept no blocks of an ended request",
    judge=judge,
)
