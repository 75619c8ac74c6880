"""A paused session counts against `max_num_seqs`. One that got its next part does not, until it is
scheduled, although its model runner keeps a slot for it: another request is admitted before it."""

from kvproof.live.deviations.facts import after, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import WAITING
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """Sessions that wait with their blocks make the difference, and no request has left."""
    engine = after(step, about)
    continued = {r.id for r in engine.requests if r.tables and r.status == WAITING}
    others = [name for name in step.effects.places or () if name not in continued]
    return cluster.sessions and not about.request and len(others) <= _most(cluster, about)


def _most(cluster: Cluster, about: About) -> int:
    return cluster.engine(about.engine).max_requests


DEVIATION = Deviation(
    name="continued_session_is_not_counted",
    in_vllm="Scheduler._update_request_as_session",
    says="a session that got its next part is not counted, and its slot is needed twice",
    signatures=seen("worker_forgets_who_left", "Schedule"),
    at_work=at_work,
)
