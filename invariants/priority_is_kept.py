"""Priority scheduling (#19057): the number of a job says who is served first, in the queue and
under pressure. Where the order was lost, an urgent request waited behind others, or lost its blocks
to one that could wait."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.events import Compute, FinishLoad, Preempt, Release, Schedule
from kvproof.model.severity import Severity
from kvproof.model.state import FAILED, LATE, LOADED, PREEMPTED, WAITING, Engine
from kvproof.model.step import Step

READY = (WAITING, PREEMPTED, LOADED, FAILED)
"""Statuses of requests that a step may admit."""


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """Whoever is preempted comes last of those that run. Whoever is admitted comes first of those
    that wait, with blocks or without, as he does: those with blocks are served before the others.
    Whose output is still to come, from a step before he was preempted, cannot be admitted yet.
    Left open is the place of a session among its equals: each of its parts comes anew.
    """
    event = step.event
    if not isinstance(event, Schedule) or not cluster.engine(event.engine).by_priority:
        return
    engine = step.before.engine(event.engine)
    rank = {r.id: (cluster.job(r.id).priority, n) for n, r in enumerate(engine.requests)}
    holds = {r.id: bool(r.tables) for r in engine.requests}
    ready = (r.id for r in engine.requests if r.status in READY)
    waiting = [name for name in ready if not _output_is_to_come(engine, name)]
    running = list(engine.running)
    for choice in event.chose or ():
        name = choice.request
        if isinstance(choice, Preempt):
            # Where nobody runs, a session that waits gives way to another.
            holders = [r for r in waiting if holds[r] and r != choice.needy]
            last = max(running or holders, key=rank.__getitem__)
            if name != last and not _open(cluster, name, last):
                yield because(
                    f"{name} is preempted",
                    f"{last} runs, of priority {_told(rank, last, name)}",
                    engine=engine.name,
                    request=name,
                )
            holds[name] = False
            running = [r for r in running if r != name]
        elif name in waiting and not isinstance(choice, (FinishLoad, Release)):
            first = min((r for r in waiting if holds[r] == holds[name]), key=rank.__getitem__)
            if name != first and not _open(cluster, name, first):
                yield because(
                    f"{name} is admitted",
                    f"{first} waits, of priority {_told(rank, first, name)}",
                    engine=engine.name,
                    request=name,
                )
            waiting.remove(name)
        if isinstance(choice, Compute) and name not in running:
            running.append(name)


def _output_is_to_come(engine: Engine, name: str) -> bool:
    """Whether a token that was sampled before a request was preempted has not arrived."""
    return any(flight.fate == LATE for flight in engine.flights(name))


def _open(cluster: Cluster, one: str, other: str) -> bool:
    """Whether either of two jobs may be served first: equals, of which one is a session."""
    a, b = cluster.job(one), cluster.job(other)
    return a.priority == b.priority and bool(a.parts or b.parts)


def _told(rank: dict[str, tuple[int, int]], one: str, other: str) -> str:
    """The priorities of two requests; of equal ones, who came first."""
    if rank[one][0] != rank[other][0]:
        return f"{rank[one][0]} and not {rank[other][0]}"
    return f"{rank[one][0]} too, which came {'first' if rank[one] < rank[other] else 'later'}"


INVARIANT = Invariant(
    id="priority_is_kept",
    name="the job of the lowest priority number is served first, and preempted last",
    origin="vllm#19057",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    killed_by="priority_is_reversed",
)
