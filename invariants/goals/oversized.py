"""Jobs that no engine can hold."""

from kvproof.invariants.goals.goal import Goal
from kvproof.model.config import Cluster
from kvproof.model.events import Submit
from kvproof.model.step import Step


def _rejected(_cluster: Cluster, step: Step, event: Submit) -> bool:
    return step.after.engine(event.engine).find(event.request) is None


GOALS = (
    Goal(
        "oversized_rejected",
        "a request is rejected because the engine can never hold it",
        *(Submit, _rejected, "oversized", "full"),
        possible=lambda cluster: cluster.oversized and not cluster.disaggregated,
    ),
)
