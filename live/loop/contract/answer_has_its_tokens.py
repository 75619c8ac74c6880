"""Outputs may come late: after a pause, after a preemption, after a reset. An answer that has come
to its largest length has this number of tokens, no output lost and none counted twice."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """An answer that ended by its length has that length."""
    for one in played.requests:
        if one.ends == ("length",) and one.tokens != one.answer:
            yield because(
                reason(
                    "ends", "{request} has ended by its length, {answer} tokens", answer=one.answer
                ),
                reason("received", "its client received {tokens} tokens", tokens=one.tokens),
                request=one.name,
            )


RULE = EngineRule(
    id="answer_has_its_tokens",
    name="an answer that ends by its length has this number of tokens",
    origin="Scheduler.update_from_output",
    severity=Severity.WRONG_TOKENS,
    judge=judge,
)
