"""Operators see the transfers of an engine in its statistics. Both sides of a connector count: the
scheduler asks its own in each step, and adds what the workers report (vllm#43877). What is taken
and not passed on, or not taken before the engine waits, is missing."""

from collections.abc import Iterator

from kvproof.live.loop.contract.idle import idle, unpaused
from kvproof.live.loop.seen import Played
from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """All that was counted was received when the loop waits and no step is in flight."""
    for wait in unpaused(played):
        if wait.number and not wait.steps and wait.received != wait.noted:
            yield because(
                idle(wait),
                reason(
                    "counted",
                    "both sides of the connector have counted {noted} transfers",
                    noted=wait.noted,
                ),
                reason(
                    "received",
                    "the statistics of the engine had {received} of them",
                    received=wait.received,
                ),
            )


RULE = EngineRule(
    id="statistics_reach_their_reader",
    name="what both sides of a connector count is in the statistics of the engine, once",
    origin="Scheduler.update_from_output; vllm#43877",
    severity=Severity.WRONG_REPORT,
    judge=judge,
)
