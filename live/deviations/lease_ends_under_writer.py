"""When P's lease expires, P frees the blocks that it still writes to D. D receives the content of
their next owner."""

from kvproof.live.deviations.facts import GROUPS, loaded, on_decode, on_prefill, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.phases import Phase
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """P's lease may expire during a write, and P still writes, or D reads what was written."""
    if not cluster.pushes or not cluster.losses:
        return False
    transfer = step.after.transfer(about.request)
    if on_prefill(cluster, about):
        return transfer is not None and transfer.phase == Phase.OVERDUE
    return on_decode(cluster, about) and loaded(step, about)


DEVIATION = Deviation(
    name="lease_ends_under_writer",
    says="P frees blocks when its lease expires, although it still writes them to D",
    signatures=(
        seen("nothing_reused_under_transfer", "LeaseExpire")
        | seen("request_reads_its_own_prefix", "Schedule", on=GROUPS)
        | seen("state_read_is_state_at_computed", "Schedule", on=GROUPS)
        | seen("cached_block_holds_its_key", "Schedule", "Complete", on=GROUPS)
    ),
    at_work=at_work,
)
