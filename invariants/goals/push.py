"""P writes to D's blocks: the engine that is ready first waits for the other."""

from kvproof.invariants.goals.goal import Goal
from kvproof.model.config import Cluster
from kvproof.model.events import LeaseExpire, Schedule
from kvproof.model.phases import Phase
from kvproof.model.step import Step


def _registers_first(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    return any(
        transfer is not None and transfer.phase is Phase.REGISTERED
        for admission in step.effects.admissions
        for transfer in [step.after.transfer(admission.request)]
        if admission.engine == event.engine
    )


def _outlives_lease(_cluster: Cluster, step: Step, event: LeaseExpire) -> bool:
    transfer = step.after.transfer(event.request)
    return transfer is not None and transfer.phase is Phase.OVERDUE


GOALS = (
    Goal(
        "push_registered_first",
        "D has registered its blocks before P has finished",
        *(Schedule, _registers_first, "push-full", "pd-full", lambda cluster: cluster.pushes),
    ),
    Goal(
        "push_after_lease",
        "P's lease expires while it writes",
        *(LeaseExpire, _outlives_lease, "push-leases", "push-full"),
        possible=lambda cluster: cluster.pushes and cluster.losses,
    ),
)
