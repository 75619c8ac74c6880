"""The align split cut a load from P to 0 tokens. The request stayed at the head of the waiting
queue for ever, without an error (vllm#42554).

This invariant is a property of runs, not of single steps. The explorer asks whether a state is
reachable from which the end of all requests is not reachable. A sampled run is continued to its
end.
"""

from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.step import Step
from kvproof.model.subjects import Subject

WAITS = "waits"
"""The kind of reason that says what a request lacks (see `strategies.waits`)."""


def check(_cluster: Cluster, _step: Step) -> tuple[Because, ...]:
    """A single step cannot break this invariant."""
    return ()


INVARIANT = Invariant(
    id="every_request_can_finish",
    name="every submitted request can still finish",
    origin="vllm#42554",
    severity=Severity.HANG,
    check=check,
    needs=(Need.FUTURE,),
    subjects=(Subject.PRESENT, Subject.STATUS),
    killed_by="align_split_during_load",
    kind="eventually",
)
