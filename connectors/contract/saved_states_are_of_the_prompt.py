"""The client of a request gets the path of a file, and trains or judges with what is in it. A file
of another block, or of another request, is not noticed: the numbers look alike (vllm#45849, where
states were read by the block table of another cache group)."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.connectors.contract.words import content as what
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import Fact, StateSaved
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """A file has the states of each token of the prompt."""
    if isinstance(fact, StateSaved) and fact.found != fact.expected:
        if fact.there:
            has = reason("file_has", "its file has {content} there", content=what(fact.found))
        else:
            has = reason("file_ends", "its file has nothing there")
        yield because(
            reason(
                "ended_with_states",
                "{request} has ended, and token {token} of its prompt has {content}",
                token=fact.token,
                content=what(fact.expected),
            ),
            has,
            request=fact.request,
        )


RULE = ConnectorRule(
    id="saved_states_are_of_the_prompt",
    name="a file of hidden states has those of each token of the prompt of its request",
    origin="ExampleHiddenStatesConnector; vllm#45849, vllm#46301",
    severity=Severity.WRONG_TOKENS,
    counts="saved hidden states",
    otherwise="it saves no hidden states",
    judge=judge,
)
