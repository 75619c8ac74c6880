"""A request that P has finished stays in the running queue until D has read its blocks."""

from kvproof.live.deviations.facts import on_prefill, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, _step: Step, about: About) -> bool:
    """The request is one of P."""
    return on_prefill(cluster, about)


DEVIATION = Deviation(
    name="finished_request_is_kept_running",
    says="P leaves a request that waits for D in the running queue",
    signatures=seen("whoever_runs_is_running", "Complete"),
    at_work=at_work,
)
