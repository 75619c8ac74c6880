"""The scheduler predicts how many blocks a request will take, compares the number with the free
blocks, and then allocates. If the prediction is too low, the pool raises in the middle of a step
(vllm#46892). If it is too high, a request that fits waits, or preempts another request."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because
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
                f"the prediction for {allocation.request} on {allocation.engine} is "
                f"{allocation.predicted} blocks",
                f"{allocation.request} took {allocation.taken} blocks",
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
