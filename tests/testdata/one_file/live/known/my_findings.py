"""A known finding of one's own."""

from kvproof.live.known.facts import on_prefill, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.known_finding import known_finding
from kvproof.model.step import Step


@known_finding(
    says="P leaves a request that waits for D in the running queue",
    signatures=seen("whoever_runs_is_running", "Complete"),
)
def finished_request_is_kept_running(cluster: Cluster, _step: Step, about: About) -> bool:
    """A request that P has finished stays in the running queue until D has read its blocks.

    Cause: The request is one of P.
    """
    return on_prefill(cluster, about)
