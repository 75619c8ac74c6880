"""Checks of whom a scheduler takes for running."""

from collections.abc import Iterator

from kvproof.invariants.check import check
from kvproof.model.because import Judged, because, holds_if, reason
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.state import RUNNING, Engine


@check(
    "a request in the running queue has the status running",
    origin="an example",
    severity=Severity.BOOKKEEPING,
    needs=(Need.QUEUES,),
)
def whoever_runs_is_running(engine: Engine) -> Iterator[Judged]:
    """A request that is in the running queue and is not running gets tokens that nobody waits
    for."""
    for request in map(engine.find, engine.running):
        if request is None:
            continue
        yield holds_if(request.status == RUNNING) or because(
            reason("in_running_queue", "{request} is in the running queue of {engine}"),
            reason("has_status", "its status is {status}", status=request.status),
            engine=engine.name,
            request=request.id,
        )
