"""A router learns from events what a store has. It cuts the tokens of an event into blocks, one for
each hash. An event whose tokens are not those blocks gives the router wrong keys, and it sends
requests elsewhere (vllm#51614). An event with one hash may be about a prefix that ends inside a
block: then it has the tokens after the last prefix with a hash."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Announced, Fact
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """An event has the tokens of as many blocks as hashes, and blocks of its group."""
    if not isinstance(fact, Announced):
        return
    carries = reason(
        "carries",
        "an event of stored blocks has {hashes} hashes and {tokens} tokens",
        hashes=fact.hashes,
        tokens=fact.tokens,
    )
    if fact.tokens != fact.hashes * fact.block_tokens:
        yield because(
            carries, reason("in_blocks", "in blocks of {size} tokens", size=fact.block_tokens)
        )
    elif fact.hashes > 1 and fact.group_tokens not in (None, fact.block_tokens):
        yield because(
            carries,
            reason(
                "group_blocks",
                "it says blocks of {size} tokens, and those of its group have {whole}",
                size=fact.block_tokens,
                whole=fact.group_tokens,
            ),
        )


RULE = ConnectorRule(
    id="events_carry_whole_blocks",
    name="an event of stored blocks carries the tokens of one block of its group for each hash",
    origin="take_events, BlockStored; vllm#51614",
    severity=Severity.LOST_PERFORMANCE,
    counts="events with tokens",
    otherwise="it reported no event with tokens",
    judge=judge,
)
