"""Operators see from where the tokens of prompts come, as counters by source, and a client sees how
many of its prompt were cached. A preempted request is looked up again and may find more: parts of
two look-ups do not fit together, and a counter would have to go down (vllm#37460)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, PromptReported
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """The parts are those of one admission, and the rest was computed. Of a prompt that was loaded
    whole, the last token is computed again, and may count as such."""
    if not isinstance(fact, PromptReported):
        return
    cached = fact.local + fact.external
    last = cached + 1 == fact.tokens
    allowed = {(local, external - less) for local, external in fact.admitted for less in {0, last}}
    if (fact.local, fact.external) in allowed and cached + fact.computed == fact.tokens:
        return
    yield because(
        reason(
            "admitted",
            "{request} has a prompt of {tokens} tokens, and was admitted with (local, external) "
            "cached tokens: {admitted}",
            tokens=fact.tokens,
            admitted=fact.admitted,
        ),
        reason(
            "reports",
            "the engine reports {local} local, {external} external and {computed} computed tokens",
            local=fact.local,
            external=fact.external,
            computed=fact.computed,
        ),
        request=fact.request,
    )


RULE = ConnectorRule(
    id="prompt_statistics_add_up",
    name="the cached tokens that an engine reports of a prompt are those of one admission, and the "
    "rest was computed",
    origin="Scheduler.update_from_output; vllm#37460",
    severity=Severity.WRONG_REPORT,
    counts="reported prompts",
    otherwise="no request came to an output",
    judge=judge,
)
