"""With priority scheduling, the priority number of a job decides which request is admitted first
and which is preempted last (vllm#19057). If a scheduler loses this order, an urgent request waits
behind others, or loses its blocks to a request that could wait."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, Reason, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Compute, FinishLoad, Preempt, Release, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import FAILED, LATE, LOADED, PREEMPTED, WAITING, Engine
from kvproof.model.step import Step
from kvproof.model.subjects import Subject

READY = (WAITING, PREEMPTED, LOADED, FAILED)
"""Statuses in which a step may admit a request."""


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """A preempted request is the last in priority of the running requests. An admitted request is
    the first of the waiting requests of its kind; requests that hold blocks are admitted before the
    others. A request whose load failed may give its blocks back at any point of the step, so its
    place is free. A request with output pending from before its preemption cannot be admitted.

    The order of a session among requests of equal priority is free, because each of its parts
    arrives anew.
    """
    event = step.event
    if not isinstance(event, Schedule) or not cluster.engine(event.engine).by_priority:
        return
    engine = step.before.engine(event.engine)
    rank = {r.id: (cluster.job(r.id).priority, n) for n, r in enumerate(engine.requests)}
    holds = {r.id: None if r.status == FAILED else bool(r.tables) for r in engine.requests}
    ready = (r.id for r in engine.requests if r.status in READY)
    waiting = [name for name in ready if not _has_pending_output(engine, name)]
    running = list(engine.running)
    for choice in event.chose or ():
        name = choice.request
        if isinstance(choice, Preempt):
            # If no request runs, a waiting session is preempted for another session.
            holders = [r for r in waiting if holds[r] and r != choice.needy]
            last = max(running or holders, key=rank.__getitem__)
            if name != last and not _open(cluster, name, last):
                yield because(
                    reason("preempted", "{request} is preempted"),
                    reason(
                        "runs_priority",
                        "{last} runs and has priority {compared}",
                        last=last,
                        compared=_compared(rank, last, name),
                    ),
                    engine=engine.name,
                    request=name,
                )
            holds[name] = False
            running = [r for r in running if r != name]
        elif name in waiting and not isinstance(choice, (FinishLoad, Release)):
            first = min((r for r in waiting if holds[r] == holds[name]), key=rank.__getitem__)
            if name != first and not _open(cluster, name, first):
                yield because(
                    reason("admitted", "{request} is admitted"),
                    reason(
                        "waits_priority",
                        "{first} waits and has priority {compared}",
                        first=first,
                        compared=_compared(rank, first, name),
                    ),
                    engine=engine.name,
                    request=name,
                )
            waiting.remove(name)
        if isinstance(choice, Compute) and name not in running:
            running.append(name)


def _has_pending_output(engine: Engine, name: str) -> bool:
    """Whether a token that was sampled before the preemption has not arrived yet."""
    return any(flight.fate == LATE for flight in engine.flights(name))


def _open(cluster: Cluster, one: str, other: str) -> bool:
    """Whether either of two jobs may be first: they have equal priority, and one of them is a
    session."""
    a, b = cluster.job(one), cluster.job(other)
    return a.priority == b.priority and bool(a.parts or b.parts)


def _compared(rank: dict[str, tuple[int, int]], one: str, other: str) -> Reason:
    """The priorities of two requests; if they are equal, which request came first."""
    ours, theirs = rank[one], rank[other]
    if ours[0] != theirs[0]:
        return reason("unequal", "{ours}, not {theirs}", ours=ours[0], theirs=theirs[0])
    if ours < theirs:
        return reason("came_first", "{ours} too, and came first", ours=ours[0])
    return reason("came_later", "{ours} too, and came later", ours=ours[0])


INVARIANT = Invariant(
    id="priority_is_kept",
    name="the job with the lowest priority number is admitted first and preempted last",
    origin="vllm#19057",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    needs=(Need.PRIORITIES,),
    subjects=(Subject.SCHEDULED, Subject.STATUS),
    killed_by="priority_is_reversed",
)
