"""P asks again for what D keeps, after it has asked once: nothing answers a second time."""

from kvproof.live.deviations.facts import HANGS, offer, on_prefill, seen
from kvproof.model.because import About
from kvproof.model.config import REVERSE, Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.phases import Phase
from kvproof.model.state import ABORTED, LOADING, PREEMPTED, WAITING
from kvproof.model.step import Step

OVER = (Phase.CLOSED, Phase.ABANDONED)
"""Phases in which nothing comes any more."""

WAITS = (WAITING, PREEMPTED, LOADING, ABORTED)


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """P begins to load from a transfer that is over. Or nobody runs on P, and a turn on it, whose
    transfer is over, waits for such a load or for room to begin it."""
    if not cluster.follow_up_turns:
        return False
    if about.request:
        offered = offer(cluster, step, about)
        over = offered is None or offered.phase in (*OVER, Phase.READING, Phase.REFUSED)
        return on_prefill(cluster, about) and over
    engine = step.after.engine(cluster.prefill.name)
    waiting = [r.id for r in engine.requests if r.status in WAITS and cluster.job(r.id).follows]
    transfers = (step.after.transfer(cluster.job(name).follows + REVERSE) for name in waiting)
    over = any(t is None or t.phase in OVER for t in transfers)
    return not engine.running and over


DEVIATION = Deviation(
    name="held_is_loaded_again",
    says="P asks a second time for what D kept, and waits for a read that does not begin",
    signatures=seen("load_is_offered", "Schedule") | HANGS,
    at_work=at_work,
)
