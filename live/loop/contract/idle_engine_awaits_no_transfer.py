"""Workers report the end of a transfer in a step. An engine that waits for a message while a
transfer goes on never learns of its end, and the blocks stay allocated (vllm#43433)."""

from collections.abc import Iterator

from kvproof.live.loop.contract.idle import idle, unpaused
from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """No transfer is in flight when the loop waits."""
    for wait in unpaused(played):
        for name in wait.transfers:
            yield because(
                idle(wait),
                reason("transfers", "the workers have not reported the transfer of {request}"),
                request=name,
            )


RULE = EngineRule(
    id="idle_engine_awaits_no_transfer",
    name="the loop waits for a message only if every transfer was reported",
    origin="Scheduler.has_requests; vllm#43433",
    severity=Severity.LEAK,
    judge=judge,
)
