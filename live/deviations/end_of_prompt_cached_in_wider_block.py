"""Full attention and Mamba cache the last prefix of a prompt that has a hash, also if no hit can
end there."""

from kvproof.live.deviations.facts import seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:  # noqa: ARG001
    """Hits inside a block are not possible, and the prefix ends inside a block of its group."""
    cfg = cluster.engine(about.engine)
    size = cfg.groups[about.group or 0].block_size
    return not cfg.partial_block_hits and len(about.prefix) % size != 0


DEVIATION = Deviation(
    name="end_of_prompt_cached_in_wider_block",
    says="the end of a prompt is cached inside a wider block, where no hit can end",
    signatures=seen("cached_key_can_be_hit", "Schedule", "Complete", on=("full", "mamba")),
    at_work=at_work,
)
