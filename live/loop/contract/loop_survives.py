"""A message of one client, or a transfer that fails, must not end the engine of all."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """The loop raises nothing."""
    if played.died:
        yield because(
            reason("plays", "an engine runs, and messages of its clients come"),
            reason("dies", "{words}", words=played.died.words),
        )


RULE = EngineRule(
    id="loop_survives",
    name="no message ends the engine",
    origin="EngineCoreProc.run_busy_loop",
    severity=Severity.CRASH,
    judge=judge,
    of_all=True,
)
