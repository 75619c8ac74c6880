"""The scheduler's queues of waiting requests."""

from typing import Any

from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.request import RequestStatus

_QUEUES: dict[type, tuple[str, ...]] = {}


def queues(scheduler: Any) -> list[Any]:
    """The queues of waiting requests; a release has one or several."""
    kind = type(scheduler)
    if kind not in _QUEUES:
        found = vars(scheduler).items()
        _QUEUES[kind] = tuple(name for name, value in found if isinstance(value, RequestQueue))
    return [getattr(scheduler, name) for name in _QUEUES[kind]]


def misqueued(scheduler: Any, request: Any) -> bool:
    """Whether the scheduler queues of a request do not match its status. A waiting request is in
    exactly one of the waiting queues; a running or finished request is in none. `running` is read
    separately."""
    times = sum(1 for queue in queues(scheduler) for other in queue if other is request)
    waits = request.status != RequestStatus.RUNNING
    return times != (waits and not RequestStatus.is_finished(request.status))
