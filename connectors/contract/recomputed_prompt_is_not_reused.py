"""A request that asks for the log-probabilities of its prompt must compute its whole prompt. With a
connector, the engine's own cache was still read for it beside Mamba (vllm#48860)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, NotComputed
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """A request that computes its whole prompt begins with the first token."""
    if isinstance(fact, NotComputed):
        yield because(
            reason(
                "must_compute",
                "{request} must compute its whole prompt (skip_reading_prefix_cache)",
            ),
            reason("begins_after", "it begins after {tokens} cached tokens", tokens=fact.tokens),
            request=fact.request,
        )


RULE = ConnectorRule(
    id="recomputed_prompt_is_not_reused",
    name="a request that must compute its whole prompt begins with its first token",
    origin="skip_reading_prefix_cache; vllm#48860",
    severity=Severity.WRONG_TOKENS,
    counts="answers for whole prompts",
    otherwise="no such request arrived",
    judge=judge,
)
