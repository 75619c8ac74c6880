"""A store is there so that a prompt is not computed twice. This rule is asked only of a connector
whose author says that it keeps every whole block of an ended prompt: then the same prompt is
offered once the engine had nothing more to do (vllm#48596, vllm#46865). It is asked where all
groups have full attention, and until what is behind the connector fails."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, Missed
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """A prompt that was computed before is offered."""
    if isinstance(fact, Missed):
        yield because(
            reason(
                "was_computed",
                "an earlier request computed the first {whole} tokens of {request}",
                whole=fact.whole,
            ),
            reason("offers", "the connector offers {tokens} of them", tokens=fact.tokens),
            request=fact.request,
        )


RULE = ConnectorRule(
    id="stored_prefix_is_offered",
    name="a prompt whose blocks were stored is offered again",
    origin="get_num_new_matched_tokens; vllm#48596, vllm#48911",
    severity=Severity.LOST_PERFORMANCE,
    counts="prompts that came again",
    otherwise="it does not say that it keeps each prompt, or none came again",
    judge=judge,
)
