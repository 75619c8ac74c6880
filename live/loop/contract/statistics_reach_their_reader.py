"""Operators see the transfers of an engine, and how often its prefix cache hits, as statistics.
Both sides of a connector count: the scheduler asks its own in each step, and adds what the workers
report (vllm#43877). A step that gives no client a token has statistics too (vllm#48668). What is
not passed on, or not taken before the engine waits, is missing."""

from collections.abc import Iterator

from kvproof.live.loop.contract.idle import idle, unpaused
from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """All that was counted was received when the loop waits and no step is in flight."""
    for wait in unpaused(played):
        for front, received in wait.received if wait.number and not wait.steps else ():
            if received != wait.noted:
                ends = received.transfers != wait.noted.transfers
                yield because(
                    idle(wait),
                    reason(
                        "counted",
                        "the engine has counted {transfers} ends of transfers and {lookups} looked "
                        "up requests",
                        transfers=wait.noted.transfers,
                        lookups=wait.noted.lookups,
                    ),
                    reason(
                        "received",
                        "the statistics that {front} passed on had {transfers} and {lookups}",
                        front=front,
                        transfers=received.transfers,
                        lookups=received.lookups,
                        feature=f"{'transfers' if ends else 'look-ups'} by {front}",
                    ),
                )


RULE = EngineRule(
    id="statistics_reach_their_reader",
    name="what an engine counts is in the statistics that its user receives, once",
    origin="Scheduler.update_from_output; LLMEngine.step; vllm#43877, vllm#48668",
    severity=Severity.WRONG_REPORT,
    judge=judge,
)
