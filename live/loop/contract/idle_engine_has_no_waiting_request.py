"""An engine waits for a message when it has nothing to do. A request that is left then has to wait
until another one happens to come."""

from collections.abc import Iterator

from kvproof.live.loop.contract.idle import idle, unpaused
from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """No request is left when the loop waits."""
    for wait in unpaused(played):
        for name in wait.waiting:
            yield because(idle(wait), reason("waits", "{request} has no end yet"), request=name)


RULE = EngineRule(
    id="idle_engine_has_no_waiting_request",
    name="the loop waits for a message only if every request has its end",
    origin="EngineCoreProc.has_work; Scheduler.has_requests",
    severity=Severity.HANG,
    judge=judge,
)
