"""The scheduler does not reject a request that the whole pool cannot hold."""

from kvproof.live.deviations.facts import HANGS, seen
from kvproof.model.because import About
from kvproof.model.capacity import can_hold
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import PREEMPTED, RUNNING, WAITING
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, _about: About) -> bool:
    """A request waits, or is preempted repeatedly, and an engine without other requests may not be
    able to hold it."""
    return cluster.oversized and any(
        r.status in (WAITING, PREEMPTED, RUNNING) and not can_hold(cluster.engine(engine.name), r)
        for engine in step.after.engines
        for r in engine.requests
    )


DEVIATION = Deviation(
    name="impossible_fit_waits",
    says=(
        "a request that the empty pool cannot hold is queued, and all requests behind it "
        "wait for ever"
    ),
    signatures=seen("step_makes_progress", "Schedule") | HANGS,
    at_work=at_work,
)
