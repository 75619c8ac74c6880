"""With structured output, a token is sampled with a mask that the grammar made for this place: it
has accepted all tokens before it. With several steps in flight, these come late, and the mask has
to wait for them. A mask of another place lets a token pass that the grammar forbids."""

from collections.abc import Iterator

from kvproof.live.loop.seen import Played
from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """The mask of each token that a client received knew the tokens before it."""
    for one in played.requests:
        for before, knew in enumerate(one.masks):
            if knew != before:
                yield because(
                    reason(
                        "received",
                        "the client of {request} received {before} tokens and then one more",
                        before=before,
                    ),
                    reason("had_no_mask", "this one was sampled without a mask of its grammar")
                    if knew is None
                    else reason("knew", "the grammar had accepted {knew} tokens then", knew=knew),
                    request=one.name,
                )


RULE = EngineRule(
    id="mask_knows_every_token",
    name="a token of structured output is sampled with a mask that knows all tokens before it",
    origin="EngineCore.step_with_batch_queue; Scheduler.get_grammar_bitmask",
    severity=Severity.WRONG_TOKENS,
    judge=judge,
)
