"""Some blocks are freed later than their request ends: after a step in flight, or after a transfer.
When nothing of this is left, all blocks are free."""

from collections.abc import Iterator

from kvproof.live.loop.contract.idle import idle, unpaused
from kvproof.live.rule import EngineRule
from kvproof.model.because import Because, because, reason
from kvproof.model.facts.loop import Played
from kvproof.model.severity import Severity


def judge(played: Played) -> Iterator[Because]:
    """All blocks are free when the loop waits and nothing is in flight."""
    for wait in unpaused(played):
        if wait.held and not (wait.waiting or wait.transfers or wait.steps):
            yield because(
                idle(wait),
                reason(
                    "held", "{blocks} blocks are not free, and no request is left", blocks=wait.held
                ),
            )


RULE = EngineRule(
    id="idle_engine_holds_no_block",
    name="when no request, step or transfer is left, every block is free",
    origin="Scheduler._free_blocks",
    severity=Severity.LEAK,
    judge=judge,
)
