"""vLLM caches blocks in the step that loads them. If the load fails, they stay in the cache under
the policy `recompute`."""

from kvproof.live.deviations.facts import failed_load, holders, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.state import Request
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """The load of a request failed in this event, and the finding is about this request or its
    blocks. Or a request computes the blocks again, and still counts them as cached."""
    failed = failed_load(step)
    if failed:
        return about.request == failed or any(r.id == failed for r in holders(step, about))
    engine = step.before.engine(about.engine)
    held = [r for r in engine.requests if any(about.block in table for table in r.tables)]
    return any(_counts_uncomputed(cluster, request, about) for request in held)


def _counts_uncomputed(cluster: Cluster, request: Request, about: About) -> bool:
    """Whether a request counts blocks of full attention as cached that it has not computed."""
    counted = zip(cluster.engine(about.engine).groups, request.num_cached_blocks, strict=False)
    return any(
        group.kind == "full" and count * group.block_size > request.computed
        for group, count in counted
    )


DEVIATION = Deviation(
    name="failed_load_stays_cached",
    says="blocks that a failed load did not fill stay in the cache",
    signatures=(
        seen("cached_block_holds_its_key", "Complete", on=("full",))
        | seen("counter_counts_only_cached", "Complete", on=("full",))
        # The drafter writes behind the tokens that are computed again, into the same block.
        | seen("cached_block_holds_its_key", "Schedule", on=("full",))
        | seen("writer_is_alone", "Schedule")
    ),
    at_work=at_work,
)
