"""Reports of a connector's worker that no request waits for."""

from kvproof.invariants.goals.goal import Goal, happens
from kvproof.model.events import StrayReport

GOALS = (
    Goal(
        "stray_report",
        "a worker reports a transfer a second time, or a request that is gone",
        *(StrayReport, happens, "pd-stray", "pd-full"),
        possible=lambda cluster: cluster.stray and cluster.disaggregated,
    ),
)
