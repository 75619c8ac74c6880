"""Each group with drafter layers must match the block after a hit, which is then dropped. A group
that shortens the hit while it drops its own block does not make the others match again: at the new
end of the hit they have the blocks of the hit, and maybe not the one after it."""

from kvproof.invariants.hits import missing
from kvproof.live.deviations.facts import admission, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """Of several groups that drop a block, a window lacks only the block after the hit."""
    cfg, admitted = cluster.engine(about.engine), admission(step, about)
    if admitted is None or about.group is None or len(cfg.groups) < 3:
        return False
    keys = {key for key, blocks in admitted.cached if blocks}
    tokens = admitted.tokens + admitted.dropped
    lacks = [p for i, p in missing(cfg, keys, tokens, admitted.hit) if i == about.group]
    group = cfg.groups[about.group]
    return cfg.drops_match(group) and all(len(prefix) > admitted.hit for prefix in lacks)


DEVIATION = Deviation(
    name="shrunk_hit_is_not_matched_again",
    in_vllm="HybridKVCacheCoordinator.find_longest_cache_hit",
    says="a group with drafter layers does not match the block after a hit that another shortens",
    signatures=seen("hit_holds_in_every_group", "Schedule", on=("window",)),
    at_work=at_work,
)
