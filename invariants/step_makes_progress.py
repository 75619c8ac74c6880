"""A request that could never fit stood at the head of the queue: none running, one waiting, for
ever, and those behind it with it (#39734). Nothing fails; every step schedules nothing.

Asked of engines that transfer nothing: there nothing but the scheduler can set a waiting request
going. On P and D it may wait for the other side, and the question is one about whole runs
(`every_request_can_finish`). So is it while a session waits for its user, with blocks.
"""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.events import Release, Schedule
from kvproof.model.severity import Severity
from kvproof.model.state import PREEMPTED, RUNNING, WAITING
from kvproof.model.step import Step


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """Where no step is in flight and a request is there, a step schedules something."""
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
        yield because(
            f"no step of {event.engine} is in flight and no transfer, "
            f"{len(before.free)} of {len(before.blocks) - 1} blocks are free, and "
            f"{', '.join(f'{r.id} ({r.status})' for r in waiting)} could be scheduled or rejected",
            "the step does neither",
            engine=event.engine,
        )


INVARIANT = Invariant(
    id="step_makes_progress",
    name="where nothing is in flight and a request waits, a step schedules or rejects one",
    origin="vllm#39734",
    severity=Severity.HANG,
    check=check,
    killed_by="impossible_fit_waits",
)
