"""Follow-up turns: P loads the tokens that D keeps of the earlier turn."""

from kvproof.invariants.goals.goal import Goal
from kvproof.invariants.parties import coming_to, is_reverse
from kvproof.model.config import Cluster
from kvproof.model.events import LeaseExpire, Schedule
from kvproof.model.step import Step


def _loads_back(cluster: Cluster, step: Step, _event: Schedule) -> bool:
    return any(
        a.external and is_reverse(coming_to(cluster, a.engine, a.request))
        for a in step.effects.admissions
    )


def _expires(_cluster: Cluster, _step: Step, event: LeaseExpire) -> bool:
    return is_reverse(event.request)


def _turns(cluster: Cluster) -> bool:
    return cluster.follow_up_turns


GOALS = (
    Goal(
        "loaded_from_decode",
        "P loads the tokens that D keeps of the earlier turn",
        *(Schedule, _loads_back, "turns", "pd-full", _turns),
    ),
    Goal(
        "kept_until_lease_end",
        "D frees the blocks that it keeps for the next turn",
        *(LeaseExpire, _expires, "turns", "pd-losing", _turns),
    ),
)
