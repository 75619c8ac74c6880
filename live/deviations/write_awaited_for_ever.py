"""D waits without limit for P's write, although P does not have the request any more, or its write
failed."""

from kvproof.live.deviations.facts import HANGS
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.phases import Phase
from kvproof.model.state import ABORTED, LOADING
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, _about: About) -> bool:
    """D keeps blocks for a write, and P does not have the request, or its write failed."""
    if not cluster.pushes:
        return False
    d, p = (step.after.engine(e.name) for e in (cluster.decode, cluster.prefill))
    for request in d.requests:
        transfer = step.after.transfer(request.id)
        failed = transfer is None or transfer.phase == Phase.ABANDONED
        if request.status in (LOADING, ABORTED) and (failed or p.find(request.id) is None):
            return True
    return False


DEVIATION = Deviation(
    name="write_awaited_for_ever",
    says="D waits for ever for a write that will never come",
    signatures=HANGS,
    at_work=at_work,
)
