"""Each group with drafter layers must match the block after a hit, which is then dropped. A group
that shortens the hit while it drops its own block does not make the others match again: at the new
end of the hit they have the blocks of the hit, and maybe not the one after it."""

from kvproof.invariants.hits import may_end_at, missing
from kvproof.live.deviations.facts import admission, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """Beside two other groups, a window lacks only the block after the hit, and has all that a
    longer hit needs."""
    cfg, admitted = cluster.engine(about.engine), admission(step, about)
    if admitted is None or about.group is None or len(cfg.groups) < 3:
        return False
    keys = {key for key, blocks in admitted.cached if blocks}
    tokens = admitted.tokens + admitted.dropped

    def lacks(hit: int) -> list[str]:
        return [prefix for index, prefix in missing(cfg, keys, tokens, hit) if index == about.group]

    here = lacks(admitted.hit)
    longer = (h for h in range(admitted.hit + 1, len(tokens)) if may_end_at(cfg, h))
    only_after = bool(here) and all(len(prefix) > admitted.hit for prefix in here)
    drops = cfg.drops_match(cfg.groups[about.group])
    return drops and only_after and any(not lacks(hit) for hit in longer)


DEVIATION = Deviation(
    name="shrunk_hit_is_not_matched_again",
    in_vllm="HybridKVCacheCoordinator.find_longest_cache_hit",
    says="a group with drafter layers does not match the block after a hit that another shortens",
    signatures=seen("hit_holds_in_every_group", "Schedule", on=("window",)),
    at_work=at_work,
)
