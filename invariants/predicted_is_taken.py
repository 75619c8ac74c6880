"""The scheduler asks how many blocks a request will take, compares that with the free ones, and
then takes. Too low, and the pool raises in the middle of a step (#46892); too high, and a request
that would fit waits or preempts another."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.step import Step


def check(_cluster: Cluster, step: Step) -> Iterator[Because]:
    """What left the free queue is what was predicted."""
    for allocation in step.effects.allocations:
        if allocation.predicted != allocation.taken:
            yield because(
                f"{allocation.request} was predicted to take {allocation.predicted} blocks of "
                f"{allocation.engine}",
                f"it took {allocation.taken}",
                engine=allocation.engine,
                request=allocation.request,
            )


INVARIANT = Invariant(
    id="predicted_is_taken",
    name="a request takes exactly the blocks it was predicted to take",
    origin="vllm#46892",
    severity=Severity.BOOKKEEPING,
    check=check,
    killed_by="prediction_forgets_hits",
)
