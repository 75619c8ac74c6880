"""A request with a wrong status is scheduled twice, or never (vllm#49439).

The table has the permitted changes of status for each kind of event. GONE is a request that its
engine no longer has, and NEW is a request that the engine did not have before.
"""

from collections.abc import Iterator

from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import (
    Abort,
    Complete,
    Continue,
    LeaseExpire,
    ResetRunning,
    Schedule,
    Submit,
    TransferDone,
    TransferFail,
)
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import alive, requests
from kvproof.model.spec.guard import Guard
from kvproof.model.state import (
    ABORTED,
    FAILED,
    LOADED,
    LOADING,
    MISQUEUED,
    PAUSED,
    PREEMPTED,
    RUNNING,
    SENDING,
    WAITING,
)
from kvproof.model.step import Step

NEW = GONE = "gone"

_STARTED = (RUNNING, LOADING)
_ABORTABLE = (WAITING, PREEMPTED, RUNNING, LOADING, LOADED, FAILED, PAUSED, MISQUEUED)
_LOAD_ENDS = {LOADING: (LOADED, FAILED, GONE), ABORTED: (GONE,), SENDING: (GONE,)}

ALLOWED: dict[type, dict[str, tuple[str, ...]]] = {
    Submit: {NEW: (WAITING,)},
    Schedule: {
        WAITING: (*_STARTED, PREEMPTED),
        PREEMPTED: _STARTED,
        RUNNING: (PREEMPTED,),
        LOADED: (WAITING, PREEMPTED, RUNNING),
        FAILED: (WAITING, PREEMPTED, RUNNING, LOADING),
    },
    Complete: {RUNNING: (GONE, SENDING, PAUSED), PREEMPTED: (GONE, SENDING, PAUSED)},
    Continue: {PAUSED: (WAITING, GONE)},
    TransferDone: _LOAD_ENDS,
    TransferFail: _LOAD_ENDS,
    LeaseExpire: _LOAD_ENDS,
    Abort: dict.fromkeys(_ABORTABLE, (GONE, ABORTED)),
    ResetRunning: {RUNNING: (PREEMPTED,)},
}


def _concerned(step: Step, name: str) -> bool:
    """Whether the event names the request, or is about all requests of an engine."""
    event = step.event
    if isinstance(event, Schedule):
        return any(name in (c.request, getattr(c, "needy", "")) for c in event.chose or ())
    if isinstance(event, Submit | Continue | Abort):
        return name == event.request
    return (
        True  # an output is about many requests; a transfer has a different request on each engine
    )


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """Each change of status is permitted for the event."""
    table = ALLOWED.get(type(step.event), {})
    for engines in alive(step):
        for name, was, now in requests(engines):
            old, new = was.status if was else NEW, now.status if now else GONE
            if old == new or (new in table.get(old, ()) and _concerned(step, name)):
                continue
            yield because(
                reason("was", "the status of {request} on {engine} was {old}", old=old),
                reason(
                    "is_after",
                    "after {event} it is {new}",
                    event=type(step.event).__name__,
                    new=new,
                ),
                engine=engines.after.name,
                request=name,
            )


GUARD = Guard(
    id="status_follows_the_event",
    name="a request changes its status only as the event permits",
    part="scheduler",
    severity=Severity.HANG,
    check=check,
    needs=(Need.CHANGED_STATUS,),
)
