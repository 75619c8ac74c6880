"""A request that the engine took has an end, unless its client is gone. Here every pause has ended
and every transfer has come, and the loop goes on and on."""

from collections.abc import Iterator

from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """No request is left without an end where the loop goes on for ever."""
    for one in played.requests if played.busy else ():
        if not (one.gone or one.ends):
            yield because(
                reason(
                    "takes",
                    "the engine took {request}; no client pauses it, and no transfer is late",
                ),
                reason("goes_on", "the loop goes on, and {request} has no end"),
                request=one.name,
            )


RULE = EngineRule(
    id="accepted_request_is_answered",
    name="every request that the engine took is answered",
    origin="EngineCoreProc.run_busy_loop",
    severity=Severity.HANG,
    judge=judge,
)
