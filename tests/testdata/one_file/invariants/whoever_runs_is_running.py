"""A request that is in the running queue and is not running gets tokens that nobody waits for."""

from collections.abc import Iterator

from kvproof.invariants.invariant import EachEngine, Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import RUNNING, Engine
from kvproof.model.subjects import Subject


def check(_cluster: Cluster, engine: Engine) -> Iterator[Because]:
    """Each request of the running queue has the status running."""
    for name in engine.running:
        request = engine.find(name)
        if request is not None and request.status != RUNNING:
            yield because(
                reason("in_running_queue", "{request} is in the running queue of {engine}"),
                reason("has_status", "its status is {status}", status=request.status),
                engine=engine.name,
                request=name,
            )


INVARIANT = Invariant(
    id="whoever_runs_is_running",
    name="a request in the running queue has the status running",
    origin="an example",
    severity=Severity.BOOKKEEPING,
    check=EachEngine(check),
    needs=(Need.QUEUES,),
    subjects=(Subject.STATUS, Subject.PRESENT),
    killed_by="request_stays_in_running_queue",
)
