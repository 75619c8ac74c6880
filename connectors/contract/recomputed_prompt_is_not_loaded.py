"""A request that asks for the log-probabilities of its prompt must compute its whole prompt: what
is loaded has none. Releases before 0.32 left it to the connector (vllm#44592)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, Promised
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """Nothing is loaded for a request that computes its whole prompt."""
    if isinstance(fact, Promised) and fact.computes_all:
        yield because(
            reason(
                "must_compute",
                "{request} must compute its whole prompt (skip_reading_prefix_cache)",
            ),
            reason("are_loaded", "{tokens} of its tokens are loaded", tokens=fact.tokens),
            request=fact.request,
        )


RULE = ConnectorRule(
    id="recomputed_prompt_is_not_loaded",
    name="nothing is loaded for a request that must compute its whole prompt",
    origin="skip_reading_prefix_cache; vllm#44592",
    severity=Severity.WRONG_TOKENS,
    counts="answers for whole prompts",
    otherwise="no such request arrived",
    judge=judge,
)
