"""The scheduler predicts how many blocks a request will take, compares the number with the free
blocks, and then allocates. If the prediction is too low, the pool raises in the middle of a step
(vllm#46892). If it is too high, a request that fits waits, or preempts another request."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.step import Step
from kvproof.model.subjects import Subject


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """The number of blocks that left the free queue is the predicted number."""
    for allocation in step.effects.allocations:
        if allocation.predicted != allocation.taken:
            yield because(
                reason(
                    "predicted",
                    "the prediction for {request} on {engine} is {predicted} blocks",
                    predicted=allocation.predicted,
                ),
                reason("took", "{request} took {taken} blocks", taken=allocation.taken),
                engine=allocation.engine,
                request=allocation.request,
            )


INVARIANT = Invariant(
    id="predicted_is_taken",
    name="a request takes exactly the predicted number of blocks",
    origin="vllm#46892",
    severity=Severity.BOOKKEEPING,
    check=check,
    needs=(Need.PREDICTIONS,),
    subjects=(Subject.PREDICTED,),
    killed_by="prediction_forgets_hits",
)
