"""Steps run on a stream of their own. A copy on another stream that does not wait for the step that
computes a block may read what was there before, and keeps it under the key of the new tokens."""

from collections.abc import Iterator

from kvproof.connectors.contract.rule import ConnectorRule, Past
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.connectors import CopiedTooEarly, Fact
from kvproof.model.severity import Severity


def judge(fact: Fact, _past: Past) -> Iterator[Because]:
    """A copy waits for what it reads."""
    if isinstance(fact, CopiedTooEarly):
        yield because(
            reason(
                "computes",
                "a step computes block {block} of {layer}",
                block=fact.block,
                layer=fact.layer,
            ),
            reason("not_after", "a copy of it does not wait for that step"),
        )


RULE = ConnectorRule(
    id="copies_follow_the_model",
    name="a copy out of a block waits for the step that computes the block",
    origin="wait_for_save, get_finished; vllm#46278",
    severity=Severity.WRONG_TOKENS,
    counts="copies of blocks",
    otherwise="it copied no block on a stream",
    judge=judge,
)
