"""The scheduler asserts that it knows the request of each report of a finished transfer."""

from kvproof.live.deviations.facts import after, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """The engine died of an assertion as it took such a report."""
    return cluster.stray and after(step, about).dead.startswith("AssertionError")


DEVIATION = Deviation(
    name="stray_report_dies",
    says=(
        "a worker's report on a transfer that was reported before, or whose request is gone, "
        "kills the engine"
    ),
    signatures=seen("engine_survives", "StrayReport"),
    at_work=at_work,
)
