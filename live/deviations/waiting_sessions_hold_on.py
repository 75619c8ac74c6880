"""Only running requests are preempted. Sessions that wait for room keep their blocks from each
other, and those that come later are not admitted before them."""

from kvproof.live.deviations.facts import HANGS, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import WAITING
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, _about: About) -> bool:
    """Nobody runs, and a session that waits holds blocks."""
    return cluster.sessions and any(
        not engine.running and any(r.tables and r.status == WAITING for r in engine.requests)
        for engine in step.after.engines
    )


DEVIATION = Deviation(
    name="waiting_sessions_hold_on",
    says="sessions that wait for blocks keep theirs from each other, and nobody runs",
    signatures=seen("step_makes_progress", "Schedule") | HANGS,
    at_work=at_work,
)
