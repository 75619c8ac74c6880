"""The fact that most rules begin with: the loop says that there is nothing to do."""

from collections.abc import Iterator

from kvproof.model.because import Reason, reason
from kvproof.model.facts.loop import LoopWait, Played


def idle(wait: LoopWait) -> Reason:
    """The loop waits for a message, or has ended."""
    if not wait.number:
        return reason("ended", "the loop of the engine has ended")
    return reason(
        "idle",
        "the loop of the engine waits for a message, for the {number}. time",
        number=wait.number,
    )


def nothing_left(wait: LoopWait) -> bool:
    """Whether a waiting loop has nothing left: no request, step, transfer or block. An engine that
    has ended may drop what it has."""
    left = wait.waiting or wait.transfers or wait.steps or wait.held
    return bool(wait.number) and not (wait.paused or left)


def unpaused(played: Played) -> Iterator[LoopWait]:
    """The times at which the loop waited although no client had paused it."""
    return (wait for wait in played.waits if not wait.paused)
