"""An engine that is to end answers or aborts its requests, and ends."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """The loop of an engine that is to end has ended."""
    if played.stopped and not played.exited:
        yield because(
            reason("stopped", "the engine is to end, and no transfer is late"),
            reason("goes_on", "its loop goes on"),
        )


RULE = EngineRule(
    id="stopped_engine_ends",
    name="the loop of an engine that is to end comes to its end",
    origin="EngineCoreProc._handle_shutdown",
    severity=Severity.HANG,
    judge=judge,
)
