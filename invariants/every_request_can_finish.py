"""A load was cut to 0 tokens by the align split and the request stayed at the head of the queue for
ever (#42554). Nothing fails; nothing happens.

This is about runs, not steps: the explorer asks whether a state is reachable from which the end is
not; a sampled run is driven to its end and must get there.
"""

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.step import Step


def check(_cluster: Cluster, _step: Step) -> tuple[Because, ...]:
    """A single step cannot break it."""
    return ()


INVARIANT = Invariant(
    id="every_request_can_finish",
    name="every submitted request can still finish",
    origin="vllm#42554",
    severity=Severity.HANG,
    check=check,
    killed_by="align_split_during_load",
    kind="eventually",
)
