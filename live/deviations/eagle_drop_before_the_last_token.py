"""One group and a drafter of the EAGLE kind: the block that is matched and dropped must end before
the last token, which several groups do not ask."""

from kvproof.live.deviations.facts import admission, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """One group, of a match in which the last block is dropped, and a prompt that ends where a
    block does."""
    cfg, admitted = cluster.engine(about.engine), admission(step, about)
    if admitted is None or len(cfg.groups) != 1 or not cfg.drops_match(cfg.groups[0]):
        return False
    return len(admitted.tokens) % cfg.groups[0].block_size == 0


DEVIATION = Deviation(
    name="eagle_drop_before_the_last_token",
    says=(
        "with one cache group and an EAGLE drafter, a prompt of whole blocks hits a block less "
        "than it could"
    ),
    signatures=seen("hit_is_the_longest", "Schedule") | seen("repeated_prompt_hits", "Schedule"),
    at_work=at_work,
)
