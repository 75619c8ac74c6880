"""The last token of a session's answer arrives after the preemption of the session, and vLLM
removes the session from all queues."""

from kvproof.live.deviations.facts import HANGS, request, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import MISQUEUED
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """With overlapping steps, a session is in no queue, or in several."""
    if not cluster.sessions or not any(e.overlaps for e in cluster.engines):
        return False
    known = request(step, about)
    lost = [r for e in step.after.engines for r in e.requests if r.status == MISQUEUED]
    return bool(lost) and (known is None or known in lost)


DEVIATION = Deviation(
    name="late_end_loses_session",
    says="a session whose last token arrives after its preemption is in no queue",
    signatures=(
        seen("every_request_in_one_queue", "Complete")
        | seen("status_follows_the_event", "Complete")
        | HANGS
    ),
    at_work=at_work,
)
