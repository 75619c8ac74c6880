"""vLLM caches blocks in the step that loads them. If the load fails, they stay in the cache under
the policy `recompute`."""

from kvproof.live.deviations.facts import failed_load, holders, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(_cluster: Cluster, step: Step, about: About) -> bool:
    """The load of a request failed in this event, and the finding is about this request or its
    blocks."""
    failed = failed_load(step)
    if not failed:
        return False
    return about.request == failed or any(r.id == failed for r in holders(step, about))


DEVIATION = Deviation(
    name="failed_load_stays_cached",
    says="blocks that a failed load did not fill stay in the cache",
    signatures=(
        seen("cached_block_holds_its_key", "Complete", on=("full",))
        | seen("counter_counts_only_cached", "Complete", on=("full",))
    ),
    at_work=at_work,
)
