"""vLLM 0.32.0 with async scheduling, found by kvproof: the last token of an answer arrives after
its session was preempted. vLLM puts the session into the waiting queue, to wait for its user. Then
it removes all requests that ended during their preemption from this queue, and the session is in no
queue."""

from kvproof.model.faults.fault import Fault
from kvproof.model.reference.scheduling.sessions import wait_for_user
from kvproof.model.state import MISQUEUED, PREEMPTED, Request


def in_no_queue(request: Request) -> Request:
    """A preempted session is in no queue."""
    paused = wait_for_user(request)
    return paused._replace(status=MISQUEUED) if request.status == PREEMPTED else paused


FAULT = Fault(
    name="late_end_loses_session",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="Scheduler._handle_stopped_request",
    mistake="a session whose answer ends after its preemption is removed from every queue",
    replaces={"reference.scheduling.sessions:wait_for_user": in_no_queue},
    breaks=("every_request_in_one_queue", "every_request_can_finish"),
    cluster="sessions-async",
    trace_events=7,
    concerns=lambda cluster: cluster.sessions and any(e.overlaps for e in cluster.engines),
)
