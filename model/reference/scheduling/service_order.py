"""The service order, and the requests that count against the limit on running requests."""

from kvproof.model.state import MISQUEUED, PAUSED, RUNNING


def rank(priority: int, arrival: int) -> tuple[int, ...]:
    """The sort key with the policy `priority`: the lowest number first, then the earliest arrival.
    The last request in this order is preempted first."""
    return priority, arrival


def takes_a_place(status: str) -> bool:
    """Whether a request of this status counts against `max_requests`: a running request, a paused
    session, or a misqueued request. Other waiting requests do not count, because they may wait
    forever, and then no other request would be admitted (vllm#53130)."""
    return status in (RUNNING, PAUSED, MISQUEUED)
