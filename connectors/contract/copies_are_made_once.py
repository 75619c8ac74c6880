"""A block that is being stored needs no second store: it takes room from what others stored, and
the link to the memory has to carry it again (vllm#41289)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import CopiedAgain, Fact
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """What is being copied is not copied again."""
    if isinstance(fact, CopiedAgain):
        yield because(
            reason(
                "under_way", "a copy of {size} bytes of a KV cache is under way", size=fact.size
            ),
            reason("again", "the same bytes are copied again"),
        )


RULE = ConnectorRule(
    id="copies_are_made_once",
    name="what is being copied out of a KV cache is not copied again",
    origin="vllm#41289",
    severity=Severity.LOST_PERFORMANCE,
    counts="copies of whole blocks",
    otherwise="it copied no block on a stream, or a block may be stored under several keys",
    judge=judge,
)
