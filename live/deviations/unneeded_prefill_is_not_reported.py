"""D does not tell P what it does not need, and P keeps its blocks until a lease ends."""

from kvproof.live.deviations.facts import on_decode, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.phases import Phase
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """P has finished what D serves, or has ended, without a load; or D ends it before P does."""
    offered = step.after.phase(about.request) == Phase.OFFERED
    unnoticed = step.before.phase(about.request) == Phase.AWAITED
    return cluster.pushes and on_decode(cluster, about) and (offered or unnoticed)


DEVIATION = Deviation(
    name="unneeded_prefill_is_not_reported",
    says="P is not told that D needs nothing of a request, and keeps its blocks",
    signatures=seen(
        "nothing_kept_for_nobody", "Schedule", "Complete", "Abort", "TransferFail", "LeaseExpire"
    )
    | seen("transfer_follows_the_table", "Complete"),
    at_work=at_work,
)
