"""The scheduler asserts that it knows the request of each report of a finished transfer."""

from kvproof.live.deviations.facts import after, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """An assertion stopped the engine when it processed such a report."""
    dead = after(step, about).dead
    return cluster.stray and dead is not None and dead.exception == "AssertionError"


DEVIATION = Deviation(
    name="stray_report_dies",
    says=(
        "a second report of a transfer, or a report for a request that is gone, stops the engine"
    ),
    signatures=seen("engine_survives", "StrayReport"),
    at_work=at_work,
)
