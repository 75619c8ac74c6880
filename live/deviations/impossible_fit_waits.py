"""Nothing in the scheduler rejects a request that the whole pool cannot hold."""

from kvproof.live.deviations.facts import HANGS, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.reference.blocks.capacity import can_hold
from kvproof.model.state import PREEMPTED, RUNNING, WAITING
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, _about: About) -> bool:
    """Somebody waits, or is preempted again and again, whom an engine without other requests is not
    sure to hold."""
    return cluster.oversized and any(
        r.status in (WAITING, PREEMPTED, RUNNING) and not can_hold(cluster.engine(engine.name), r)
        for engine in step.after.engines
        for r in engine.requests
    )


DEVIATION = Deviation(
    name="impossible_fit_waits",
    says=(
        "a request that the empty pool cannot hold is queued, and waits for ever with all behind it"
    ),
    signatures=seen("step_makes_progress", "Schedule") | HANGS,
    at_work=at_work,
)
