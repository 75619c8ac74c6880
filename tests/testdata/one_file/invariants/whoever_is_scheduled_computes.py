"""Guards of what a step gives to whom."""

from collections.abc import Iterator

from kvproof.invariants.check import check
from kvproof.model.because import Judged, because, holds, reason
from kvproof.model.events import Compute, Schedule
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.step import Step


@check(
    "a step computes at least one token of each request of its batch",
    part="scheduler",
    severity=Severity.LOST_PERFORMANCE,
    needs=(Need.BATCH,),
)
def whoever_is_scheduled_computes(step: Step) -> Iterator[Judged]:
    """A request that a step schedules without a token takes a place in the batch for nothing."""
    if not isinstance(step.event, Schedule):
        return
    for choice in step.event.chose or ():
        if not isinstance(choice, Compute):
            continue
        if choice.tokens >= 1:
            yield holds()
        else:
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
