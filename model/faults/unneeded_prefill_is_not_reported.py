"""vLLM 0.32.0's push connector on D: if a request hits all it needs, or ends before it is admitted,
D must report this to P. D sends no report, and P keeps the blocks until its lease expires."""

from kvproof.model.config import Cluster
from kvproof.model.faults.fault import Fault
from kvproof.model.reference.transfers.loads import declined
from kvproof.model.reference.transfers.offers import OPEN
from kvproof.model.state import State


def without_a_report(cluster: Cluster, state: State, name: str) -> State:
    """Nothing, where D has not answered P's offer."""
    transfer = state.transfer(name)
    unanswered = transfer is not None and transfer.phase in OPEN
    return state if cluster.pushes and unanswered else declined(cluster, state, name)


FAULT = Fault(
    name="unneeded_prefill_is_not_reported",
    origin="kvproof, vLLM 0.32.0",
    in_vllm="NixlPushConnectorScheduler.update_state_after_alloc",
    mistake="D does not report to P that it needs nothing of a request, and P keeps the blocks",
    replaces={"reference.transfers.loads:declined": without_a_report},
    breaks=("nothing_kept_for_nobody",),
    cluster="push",
    trace_events=13,
    concerns=lambda cluster: cluster.pushes,
)
