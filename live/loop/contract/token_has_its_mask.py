"""A client that asks for structured output gets it for each token after the reasoning. A token that
was sampled without a mask may be one that the grammar forbids: the answer is no longer of the form
that was asked for, or the request ends with an error (vllm#44006)."""

from collections.abc import Iterator

from kvproof.live.loop.contract.received import received
from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """Each token after the reasoning had a mask."""
    for one in played.requests:
        for before, knew in enumerate(one.masks):
            if knew is None:
                yield because(
                    received(before),
                    reason(
                        "had_no_mask",
                        "this one was sampled without a mask of its grammar",
                        # Where reasoning ends, and behind it, masks are made by different code.
                        feature="a later token" if before else "the first token",
                    ),
                    request=one.name,
                )


RULE = EngineRule(
    id="token_has_its_mask",
    name="after the reasoning, each token of structured output is sampled with a mask",
    origin="StructuredOutputManager.grammar_bitmask; vllm#44006",
    severity=Severity.WRONG_TOKENS,
    judge=judge,
)
