"""A request whose load failed keeps its place before requests that hold what they have loaded. If
it does not fit, the step ends at it, and nobody behind it runs."""

from kvproof.live.deviations.facts import HANGS
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import FAILED, LOADED, LOADING, PREEMPTED, WAITING
from kvproof.model.step import Step

HOLDS = (LOADING, LOADED, FAILED)


def at_work(cluster: Cluster, step: Step, _about: About) -> bool:
    """A load has failed under the policy `recompute`. No request runs, one waits without blocks,
    and one that arrived later holds blocks for a load."""
    if cluster.load_failure != "recompute" or not step.after.failures:
        return False
    for engine in step.after.engines:
        waits = False
        for request in () if engine.running else engine.requests:
            if waits and request.status in HOLDS:
                return True
            waits = waits or (request.status in (WAITING, PREEMPTED) and not request.tables)
    return False


DEVIATION = Deviation(
    name="failed_load_holds_the_queue",
    says="a request whose load failed keeps its place before requests that hold loaded blocks",
    signatures=HANGS,
    at_work=at_work,
)
