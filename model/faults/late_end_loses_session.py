"""Async scheduling: the last token of an answer comes after its session was preempted. It is put
into the queue of those that wait, as a session that waits for its user; then all that ended while
they were preempted are taken out of it, and no queue has the session any more."""

from kvproof.model.faults.fault import Fault
from kvproof.model.reference.scheduling.sessions import wait_for_user
from kvproof.model.state import MISQUEUED, PREEMPTED, Request


def in_no_queue(request: Request) -> Request:
    """One that was preempted waits in no queue."""
    paused = wait_for_user(request)
    return paused._replace(status=MISQUEUED) if request.status == PREEMPTED else paused


FAULT = Fault(
    name="late_end_loses_session",
    origin="kvproof, vLLM 0.32.0",
    mistake="a session whose answer ends after its preemption is taken out of every queue",
    replaces=("wait_for_user", in_no_queue),
    breaks=("every_request_in_one_queue", "every_request_can_finish"),
    cluster="sessions-async",
    trace_events=7,
    concerns=lambda cluster: cluster.sessions and any(e.overlaps for e in cluster.engines),
)
