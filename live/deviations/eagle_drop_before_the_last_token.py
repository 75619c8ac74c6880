"""With one group and an EAGLE drafter, the matched block that is dropped must end before the last
token. With several groups it need not."""

from kvproof.live.deviations.facts import admission, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """One group with a drafter's layers, and a prompt that ends at a block boundary."""
    cfg, admitted = cluster.engine(about.engine), admission(step, about)
    if admitted is None or len(cfg.groups) != 1 or not cfg.drops_match(cfg.groups[0]):
        return False
    return len(admitted.tokens) % cfg.groups[0].block_size == 0


DEVIATION = Deviation(
    name="eagle_drop_before_the_last_token",
    says=(
        "with one cache group and an EAGLE drafter, a prompt of full blocks hits one block "
        "less than it could"
    ),
    signatures=seen("hit_is_the_longest", "Schedule") | seen("repeated_prompt_hits", "Schedule"),
    at_work=at_work,
)
