"""Priority scheduling."""

from kvproof.invariants.goals.goal import Goal
from kvproof.model.config import Cluster
from kvproof.model.events import Compute, Preempt, Schedule
from kvproof.model.state import WAITING
from kvproof.model.step import Step


def _overtakes(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    """A request is admitted while an earlier request without blocks still waits."""
    admitted = {admission.request for admission in step.effects.admissions}
    waits = False
    for request in step.after.engine(event.engine).requests:
        if request.id in admitted and waits:
            return True
        waits = waits or (request.status == WAITING and not request.tables)
    return False


def _unscheduled(_cluster: Cluster, _step: Step, event: Schedule) -> bool:
    scheduled = set()
    for choice in event.chose or ():
        if isinstance(choice, Compute):
            scheduled.add(choice.request)
        if isinstance(choice, Preempt) and choice.request in scheduled:
            return True
    return False


def _goes_on(_cluster: Cluster, step: Step, event: Schedule) -> bool:
    """Another request is preempted for a running request, and a later running request is served."""
    choices = event.chose or ()
    needy = {c.needy for c in choices if isinstance(c, Preempt) and c.request != c.needy}
    served = [c.request for c in choices if isinstance(c, Compute)]
    running = step.before.engine(event.engine).running
    after = [name for first in needy & set(served) for name in served[served.index(first) + 1 :]]
    return any(name in running for name in after)


def _by_priority(cluster: Cluster) -> bool:
    return cluster.by_priority


GOALS = (
    Goal(
        "overtaken",
        "a request is admitted before an earlier request that still waits",
        *(Schedule, _overtakes, "priority", "full", _by_priority),
    ),
    Goal(
        "taken_out_of_step",
        "a request is preempted in the step that scheduled it",
        *(Schedule, _unscheduled, "priority", "window", _by_priority),
    ),
    Goal(
        "served_after_preemption",
        "a step preempts a request for another, and serves a third that runs",
        *(Schedule, _goes_on, "priority-async", "full", _by_priority),
    ),
)
