"""The align split uses the smallest block size of all groups. A state is then cached under the
prefix of a wider block, which has another state. Where no hit ends inside a block, no state may be
cached at a boundary of that block, and a repeated prompt does not hit."""

from kvproof.live.deviations.facts import seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:  # noqa: ARG001
    """Another group has a smaller block size than the Mamba group. A missed hit (about no group) is
    explained only where no hit ends inside a block."""
    cfg = cluster.engine(about.engine)
    smallest = min(g.block_size for g in cfg.groups)
    if about.group is not None:
        return smallest < cfg.groups[about.group].block_size
    state = cfg.aligned_group
    return state is not None and not cfg.partial_block_hits and smallest < state.block_size


DEVIATION = Deviation(
    name="split_at_the_smallest_block",
    says=(
        "chunks are split by the smallest block size, and a wrong state is cached for a wider block"
    ),
    signatures=(
        seen("cached_block_holds_its_key", "Schedule", "Complete", on=("mamba",))
        | seen("state_read_is_state_at_computed", "Schedule", on=("mamba",))
        | seen("repeated_prompt_hits", "Schedule")
    ),
    at_work=at_work,
)
