"""A request that could never fit stood at the head of the waiting queue. No request ran, and this
request and all requests behind it waited for ever (vllm#39734). Nothing fails; every step schedules
nothing.

The invariant judges only engines without KV transfer: there only the scheduler can start a waiting
request. On P and D, and while a session with blocks waits for its user, `every_request_can_finish`
judges the whole run.
"""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Release, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import PREEMPTED, RUNNING, WAITING
from kvproof.model.step import Step
from kvproof.model.subjects import Subject

COULD_SCHEDULE = "could_schedule"
"""The kind of reason that names the requests that a step could schedule."""


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """If no step is in flight and the engine has a request, a step schedules something."""
    event = step.event
    if not isinstance(event, Schedule) or cluster.engine(event.engine).connected:
        return
    if not all(isinstance(choice, Release) for choice in event.chose or ()):
        return
    before, after = step.before.engine(event.engine), step.after.engine(event.engine)
    waiting = [r for r in before.requests if after.find(r.id)]
    ready = all(r.status in (WAITING, PREEMPTED, RUNNING) for r in before.requests)
    in_flight = before.step is not None or before.steps
    if waiting and ready and not in_flight and not after.dead:
        counted = [
            reason(
                "vllm_counts",
                "vLLM counts {needed} needed and {free} free blocks for {refused}",
                needed=r.needed,
                free=r.free,
                refused=r.request,
            )
            for r in step.effects.refused
        ]
        yield because(
            reason(
                COULD_SCHEDULE,
                "no step of {engine} and no transfer is in flight, {free} of {pool} blocks are "
                "free, and the step could schedule or reject {requests:names} ({statuses:names})",
                free=len(before.free),
                pool=len(before.blocks) - 1,
                requests=[r.id for r in waiting],
                statuses=[r.status for r in waiting],
            ),
            *counted,
            reason("does_neither", "the step does neither"),
            engine=event.engine,
        )


INVARIANT = Invariant(
    id="step_makes_progress",
    name="if nothing is in flight and a request waits, a step schedules or rejects a request",
    origin="vllm#39734",
    severity=Severity.HANG,
    check=check,
    needs=(Need.EMPTY_STEPS,),
    subjects=(Subject.PRESENT, Subject.STATUS, Subject.SCHEDULED),
    killed_by="impossible_fit_waits",
)
