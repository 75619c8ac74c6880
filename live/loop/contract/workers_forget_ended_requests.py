"""Workers keep the state of a request until a step says that it has ended. An engine without
requests has to make one more step for this."""

from collections.abc import Iterator

from kvproof.live.loop.contract.idle import idle, unpaused
from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """The workers keep nothing of ended requests when the loop waits."""
    for wait in unpaused(played):
        for name in wait.ended:
            yield because(
                idle(wait),
                reason("keeps", "the workers have the state of {request}, which has ended"),
                request=name,
            )


RULE = EngineRule(
    id="workers_forget_ended_requests",
    name="the loop waits for a message only if the workers know which requests have ended",
    origin="Scheduler.finished_req_ids",
    severity=Severity.LEAK,
    judge=judge,
)
