"""No more requests run at a time than `max_requests`."""

from kvproof.invariants.goals.goal import Goal
from kvproof.model.config import Cluster
from kvproof.model.events import Schedule
from kvproof.model.state import PREEMPTED, WAITING
from kvproof.model.step import Step


def _waits(cluster: Cluster, step: Step, event: Schedule) -> bool:
    """Somebody waits without blocks, and as many run as may."""
    engine = step.after.engine(event.engine)
    waits = any(r.status in (WAITING, PREEMPTED) and not r.tables for r in engine.requests)
    return waits and len(engine.running) >= cluster.engine(event.engine).max_requests


GOALS = (
    Goal(
        "held_up_by_limit",
        "a request waits, for as many run as may",
        *(Schedule, _waits, "pd-limited", "pd-full"),
        possible=lambda cluster: any(e.max_requests < len(cluster.jobs) for e in cluster.engines),
    ),
)
