"""With `request_finished`, a connector may keep the blocks of a request that has ended, until it
reports the end of the send. If it never does, the pool loses these blocks for ever (vllm#42611,
vllm#43742, vllm#53903)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import Past, Rule
from kvproof.connectors.facts import Fact, Owed, Waits
from kvproof.model.because import Because, because
from kvproof.model.severity import Severity


def judge(fact: Fact, past: Past) -> Iterator[Because]:
    """An engine that has nothing more to do has all its blocks."""
    if isinstance(fact, Waits) and fact.status.startswith("FINISHED"):
        whose = "the connector keeps its blocks" if fact.request in past.sends else "it has blocks"
        yield because(
            f"{fact.request} has ended ({fact.status}), and {whose}",
            f"{fact.steps} steps brought no report of the end of its transfer",
            request=fact.request,
        )
    elif isinstance(fact, Owed):
        keeps = ", ".join((*fact.holders, *sorted(past.sends))) or "no request that is known"
        yield because(
            "the engine says that it has nothing more to do",
            f"{fact.blocks} of its blocks are not free; {keeps} has them",
        )


RULE = Rule(
    id="kept_blocks_are_given_back",
    name="when nothing more arrives, every block is free at last",
    origin="request_finished, get_finished; vllm#42611, vllm#43742",
    severity=Severity.LEAK,
    counts="kept requests",
    otherwise="it kept no blocks of an ended request",
    judge=judge,
)
