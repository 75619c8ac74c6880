"""The scheduler takes the number of matched tokens as it is: it adds it to the computed tokens and
takes blocks for it. A negative number, or more tokens than the request has, ends the engine. A load
within the step must leave a token to compute, because a step of no tokens has no output. Only
tokens can be loaded later (vllm#42289)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, Matched
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """The answer of get_num_new_matched_tokens is one that the scheduler can follow."""
    if not isinstance(fact, Matched) or fact.tokens is None:
        return
    left = fact.request_tokens - fact.computed_tokens
    most = left if fact.later else left - 1
    has = reason(
        "has_tokens",
        "{request} has {tokens} tokens, {computed} computed",
        tokens=fact.request_tokens,
        computed=fact.computed_tokens,
    )
    if not 0 <= fact.tokens <= most and (fact.tokens or fact.later):
        yield because(
            has,
            reason("matches", "the connector matches {tokens} tokens", tokens=fact.tokens),
            request=fact.request,
        )
    elif fact.later and not fact.tokens:
        yield because(
            has,
            reason("loads_nothing_later", "the connector loads 0 tokens in a later step"),
            request=fact.request,
        )


RULE = ConnectorRule(
    id="matched_tokens_can_be_loaded",
    name="the number of matched tokens is from 0 to the tokens that are left",
    origin="get_num_new_matched_tokens; Scheduler.schedule",
    severity=Severity.CRASH,
    counts="answers",
    otherwise="it was never asked",
    judge=judge,
)
