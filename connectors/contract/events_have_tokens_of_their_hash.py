"""A router learns from events which prefixes a store has: it makes its own keys of the tokens. An
event that has the tokens of another block sends requests to where their prefix is not."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import EventMisread, Fact
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """The tokens of a hash are the last ones of the prefix that has this hash."""
    if isinstance(fact, EventMisread):
        yield because(
            reason(
                "carries_tokens",
                "an event of stored blocks has the tokens {carried} for a hash",
                carried=fact.carried,
            ),
            reason("hash_of", "the prefix with this hash is {prefix}", prefix=fact.prefix),
        )


RULE = ConnectorRule(
    id="events_have_tokens_of_their_hash",
    name="an event of stored blocks has for each hash the tokens of the block with this hash",
    origin="take_events, BlockStored.token_ids; vllm#42959",
    severity=Severity.LOST_PERFORMANCE,
    counts="hashes of events whose prefix is known",
    otherwise="it reported no event with tokens and a hash of a known prefix",
    judge=judge,
)
