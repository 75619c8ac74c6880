"""A request that a step schedules without a token takes a place in the batch for nothing."""

from collections.abc import Iterator

from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.events import Compute, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.spec.guard import Guard
from kvproof.model.step import Step
from kvproof.model.subjects import Subject


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """A step computes at least one token of each request of its batch."""
    if not isinstance(step.event, Schedule):
        return
    for choice in step.event.chose or ():
        if isinstance(choice, Compute) and choice.tokens < 1:
            yield because(
                reason("in_the_batch", "{request} is in the batch of a step of {engine}"),
                reason(
                    "computes",
                    "the step computes {tokens} of its tokens",
                    tokens=choice.tokens,
                ),
                engine=step.event.engine,
                request=choice.request,
            )


GUARD = Guard(
    id="whoever_is_scheduled_computes",
    name="a step computes at least one token of each request of its batch",
    part="scheduler",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    needs=(Need.BATCH,),
    subjects=(Subject.SCHEDULED,),
)
