"""While an engine is paused, its weights may be exchanged and its memory be given away. So a pause
is complete only when no step is in flight, and no step has tokens until it ends. An engine that
sleeps has given its memory up: if a part comes back, nothing is computed before the others do
(vllm#44483)."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """No step computes tokens while a pause is complete, or memory is given up."""
    for tokens in played.computed:
        yield because(
            reason("complete", "a client was answered that the engine is paused"),
            reason(
                "computes", "before the pause ends, a step computes {tokens} tokens", tokens=tokens
            ),
        )
    for tokens in played.asleep:
        yield because(
            reason("asleep", "a part of the memory of the workers is given up: the engine sleeps"),
            reason("begins", "a step computes {tokens} tokens", tokens=tokens),
        )
    if played.unsettled:
        yield because(
            reason("settles", "the engine takes a pause to be complete"),
            reason("steps", "{steps} steps are in flight", steps=played.unsettled),
        )


RULE = EngineRule(
    id="pause_computes_nothing",
    name="while a pause is complete, nothing is computed",
    origin="EngineCoreProc.pause_scheduler; vllm#44483",
    severity=Severity.WRONG_TOKENS,
    judge=judge,
)
