"""With several steps in flight, outputs are still to come when nothing more is scheduled. An engine
that waits for a message then gives no client its last tokens, also where it is paused."""

from collections.abc import Iterator

from kvproof.live.loop.contract.idle import idle
from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """No step is in flight when the loop waits."""
    for wait in played.waits:
        if wait.steps:
            yield because(
                idle(wait),
                reason(
                    "steps",
                    "{steps} steps are in flight, whose output nobody took",
                    steps=wait.steps,
                ),
            )


RULE = EngineRule(
    id="idle_engine_has_every_output",
    name="the loop waits for a message only if it has the output of every step",
    origin="EngineCore.step_with_batch_queue",
    severity=Severity.HANG,
    judge=judge,
)
