"""Requests begin to run within a scheduler step, which has the room for them."""

from collections.abc import Iterator

from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Schedule
from kvproof.model.severity import Severity
from kvproof.model.spec.changes import alive
from kvproof.model.spec.guard import Guard
from kvproof.model.step import Step


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """Outside a step no request is added to the running queue."""
    if isinstance(step.event, Schedule):
        return
    for before, after in alive(step):
        for name in set(after.running) - set(before.running):
            yield because(
                reason("may_not_run", "{event} lets nobody run", event=type(step.event).__name__),
                reason("runs", "{request} runs on {engine}, and did not before"),
                engine=after.name,
                request=name,
            )


GUARD = Guard(
    id="only_a_step_lets_run",
    name="no event but a scheduler step adds a request to the running queue",
    part="scheduler",
    severity=Severity.HANG,
    check=check,
)
