"""vLLM preempts only running requests. Sessions that wait for room keep their blocks, and later
requests are not admitted before them."""

from kvproof.live.deviations.facts import HANGS, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import WAITING
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, _about: About) -> bool:
    """No request runs, and a waiting session holds blocks."""
    return cluster.sessions and any(
        not engine.running and any(r.tables and r.status == WAITING for r in engine.requests)
        for engine in step.after.engines
    )


DEVIATION = Deviation(
    name="waiting_sessions_hold_on",
    says="waiting sessions keep the blocks that other sessions wait for, and no request runs",
    signatures=seen("step_makes_progress", "Schedule") | HANGS,
    at_work=at_work,
)
