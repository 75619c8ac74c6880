"""P asks a second time for the tokens that D keeps. vLLM starts only one transfer per request."""

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
    """P begins to load from a completed transfer. Or no request runs on P, and a follow-up turn
    with a completed transfer waits for its load, or for room to begin it."""
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
    says="P asks a second time for the tokens that D keeps, and no second read begins",
    signatures=seen("load_is_offered", "Schedule") | HANGS,
    at_work=at_work,
)
