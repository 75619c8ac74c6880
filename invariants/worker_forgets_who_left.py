"""The worker has `max_num_seqs` places for requests. A paused session keeps its place although it
does not run, and the scheduler did not count it. It also did not report to the worker which
requests a reset had preempted. The worker had more requests than places and failed (vllm#46974)."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import ABORTED, SENDING
from kvproof.model.step import Step


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """After a step, the worker has no more requests than places. Each of them is unfinished and
    holds blocks: a preempted request, which starts over, has left."""
    event, places = step.event, step.effects.places
    if not isinstance(event, Schedule) or not places:
        return
    engine = step.after.engine(event.engine)
    if engine.dead:
        return
    most = cluster.engine(engine.name).max_requests
    if len(places) > most:
        yield because(
            reason(
                "has_places", "the worker of {engine} has places for {most} requests", most=most
            ),
            reason("keeps", "it keeps {places:names}", places=places),
            engine=engine.name,
        )
    for name in places:
        request = engine.find(name)
        if request is None or not request.tables or request.status in (SENDING, ABORTED):
            status = "has ended" if request is None else f"is {request.status}"
            yield because(
                reason(
                    "left_batch",
                    "{request} {status} on {engine} and has left the batch",
                    status=status,
                ),
                reason("keeps_place", "the worker has no report of this, and keeps a place for it"),
                engine=engine.name,
                request=name,
            )


INVARIANT = Invariant(
    id="worker_forgets_who_left",
    name="the worker keeps a place for each request in the batch and for no other",
    origin="vllm#46974",
    severity=Severity.CRASH,
    check=check,
    needs=(Need.PLACES,),
    killed_by="preemption_is_not_reported",
)
