"""The align split cuts chunks at the smallest block of all groups, so that a state is cached under
the prefix of a wider block that it is not the state of."""

from kvproof.live.deviations.facts import seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:  # noqa: ARG001
    """Some group has smaller blocks than the Mamba group."""
    groups = cluster.engine(about.engine).groups
    return min(g.block_size for g in groups) < groups[about.group or 0].block_size


DEVIATION = Deviation(
    name="split_at_the_smallest_block",
    says="chunks are cut by the smallest block size, and a state is cached for a wider block",
    signatures=(
        seen("cached_block_holds_its_key", "Schedule", "Complete", on=("mamba",))
        | seen("state_read_is_state_at_computed", "Schedule", on=("mamba",))
    ),
    at_work=at_work,
)
