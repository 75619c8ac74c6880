"""P asks a second time for the tokens that D keeps. vLLM starts only one transfer per request."""

from kvproof.live.deviations.facts import HANGS, offer, on_prefill, seen
from kvproof.model.because import About
from kvproof.model.config import REVERSE, Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.phases import Phase
from kvproof.model.state import ABORTED, LOADING, PREEMPTED, WAITING, Engine
from kvproof.model.step import Step

OVER = (Phase.CLOSED, Phase.ABANDONED)
"""Phases in which nothing comes any more."""

WAITS = (WAITING, PREEMPTED, LOADING, ABORTED)


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """P begins to load from a completed transfer. Or no request runs on P, and a follow-up turn
    with a completed transfer waits for its load, or for room to begin it, or holds with its load
    the room that the request of the finding waits for."""
    if not cluster.follow_up_turns:
        return False
    engine = step.after.engine(cluster.prefill.name)
    if about.request:
        if not on_prefill(cluster, about):
            return False
        offered = offer(cluster, step, about)
        request = engine.find(about.request)
        lacks_room = request is not None and request.status in (WAITING, PREEMPTED)
        if offered is None or offered.phase in (*OVER, Phase.READING, Phase.REFUSED):
            return True
        return lacks_room and _over(cluster, step, engine, (LOADING,))
    return _over(cluster, step, engine, WAITS)


def _over(cluster: Cluster, step: Step, engine: Engine, statuses: tuple[str, ...]) -> bool:
    """Whether no request runs, and a follow-up turn with one of these statuses waits for what a
    completed transfer does not bring."""
    waiting = [r.id for r in engine.requests if r.status in statuses and cluster.job(r.id).follows]
    transfers = (step.after.transfer(cluster.job(name).follows + REVERSE) for name in waiting)
    return not engine.running and any(t is None or t.phase in OVER for t in transfers)


DEVIATION = Deviation(
    name="held_is_loaded_again",
    says="P asks a second time for the tokens that D keeps, and no second read begins",
    signatures=seen("load_is_offered", "Schedule") | HANGS,
    at_work=at_work,
)
