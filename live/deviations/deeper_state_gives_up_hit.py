"""If the hit of one group alone is longer than the hit of full attention, D uses only the common
hit of all groups, although P would send the states."""

from kvproof.live.deviations.facts import admission, covered, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """Another group has cached a prefix of the prompt that full attention has not cached."""
    cfg, admitted = cluster.engine(about.engine), admission(step, about)
    if admitted is None or not admitted.external or not cfg.connected:
        return False
    others = [i for i, group in enumerate(cfg.groups) if group.kind != "full"]
    return any(
        key[0] in others
        and blocks
        and admitted.tokens.startswith(key[1])
        and not covered(cluster, admitted, len(key[1]))
        for key, blocks in admitted.cached
    )


DEVIATION = Deviation(
    name="deeper_state_gives_up_hit",
    says=(
        "if a cached state covers more tokens than the attention cache, D gives up its local hit"
    ),
    signatures=seen("repeated_prompt_hits", "Schedule") | seen("hit_is_the_longest", "Schedule"),
    at_work=at_work,
)
