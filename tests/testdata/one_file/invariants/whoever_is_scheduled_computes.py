"""Guards of what a step gives to whom."""

from collections.abc import Iterator

from kvproof.invariants.changes import Scheduled
from kvproof.invariants.check import check
from kvproof.model.because import Judged, because, holds_if, reason
from kvproof.model.events import Compute
from kvproof.model.needs import Need
from kvproof.model.severity import Severity


@check(
    "a step computes at least one token of each request of its batch",
    part="scheduler",
    severity=Severity.LOST_PERFORMANCE,
    needs=(Need.BATCH,),
)
def whoever_is_scheduled_computes(made: Scheduled) -> Iterator[Judged]:
    """A request that a step schedules without a token takes a place in the batch for nothing."""
    for choice in made.choices:
        if not isinstance(choice, Compute):
            continue
        yield holds_if(choice.tokens >= 1) or because(
            reason("in_the_batch", "{request} is in the batch of a step of {engine}"),
            reason("computes", "the step computes {tokens} of its tokens", tokens=choice.tokens),
            engine=made.after.name,
            request=choice.request,
        )
