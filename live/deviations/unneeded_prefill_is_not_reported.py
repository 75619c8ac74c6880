"""D does not report to P what it does not need, and P keeps its blocks until the lease expires."""

from kvproof.live.deviations.facts import on_decode, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.phases import Phase
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """P has finished a request that D runs, or has ended, without a load."""
    offered = step.after.phase(about.request) == Phase.OFFERED
    unnoticed = step.before.phase(about.request) == Phase.AWAITED
    return cluster.pushes and on_decode(cluster, about) and (offered or unnoticed)


DEVIATION = Deviation(
    name="unneeded_prefill_is_not_reported",
    says="D does not report to P that it needs nothing of a request, and P keeps the blocks",
    signatures=seen(
        "nothing_kept_for_nobody",
        "Schedule",
        "Complete",
        "Continue",
        "Abort",
        "TransferFail",
        "LeaseExpire",
    )
    | seen("transfer_follows_the_table", "Complete", "Continue"),
    at_work=at_work,
)
