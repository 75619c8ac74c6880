"""Who is served first, and who counts against the limit on running requests."""

from kvproof.model.state import MISQUEUED, PAUSED, RUNNING


def rank(priority: int, arrival: int) -> tuple[int, ...]:
    """Who is served first where priorities count: the lowest number, then who came first. The last
    in this order is preempted."""
    return priority, arrival


def takes_a_place(status: str) -> bool:
    """Whether a request of this status counts against `max_requests`: one that runs, or a session
    whose user will go on, though it may be lost. Others may wait for something that never comes,
    and nobody else would be admitted (vllm#53130)."""
    return status in (RUNNING, PAUSED, MISQUEUED)
