"""With structured output, a token is sampled with a mask that the grammar made for this place: it
has accepted all tokens before it that follow the reasoning. With several steps in flight, these
come late, and the mask has to wait for them; with drafts, reasoning may end inside a step
(vllm#44993). A mask of another place lets a token pass that the grammar forbids."""

from collections.abc import Iterator

from kvproof.live.loop.contract.received import received
from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """The mask of each token that a client received knew the tokens before it."""
    for one in played.requests:
        for before, knew in enumerate(one.masks):
            if knew not in (None, before):
                yield because(
                    received(before),
                    reason("knew", "the grammar had accepted {knew} tokens then", knew=knew),
                    request=one.name,
                )


RULE = EngineRule(
    id="mask_knows_every_token",
    name="a mask of structured output knows all tokens before its own",
    origin="EngineCore.step_with_batch_queue; Scheduler.get_grammar_bitmask; vllm#44993",
    severity=Severity.WRONG_TOKENS,
    judge=judge,
)
