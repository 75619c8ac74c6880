"""An answer is right only if each step reads the KV of the tokens of its own request. Whatever goes
wrong in a connector, this is what a user notices (vllm#49285, vllm#44599, vllm#43494)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.connectors.contract.words import content, place
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, SlotRead
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """A slot that a step reads holds what the request needs there."""
    if isinstance(fact, SlotRead):
        yield because(
            reason("needs", "a step of {request} needs {content}", content=content(fact.expected)),
            reason(
                "holds",
                "{place} holds {content}",
                place=place(fact.slot),
                content=content(fact.found),
            ),
            request=fact.request,
            group=fact.slot.group,
            block=fact.slot.block,
        )


RULE = ConnectorRule(
    id="request_reads_its_own_tokens",
    name="each slot that a step reads holds the KV of the request's own tokens",
    origin="attention; vllm#49285, vllm#44599",
    severity=Severity.WRONG_TOKENS,
    counts="reads",
    otherwise="no step read anything",
    judge=judge,
)
