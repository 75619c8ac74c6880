"""A prefix shorter than a window is cut to whole units of a hit before the drafter's block is
dropped, and again after it. It loses one unit more than the block."""

from math import ceil

from kvproof.invariants.hit_is_the_longest import longest
from kvproof.live.deviations.facts import admission, seen
from kvproof.model.because import About
from kvproof.model.config import Cluster
from kvproof.model.deviation import Deviation
from kvproof.model.step import Step


def at_work(cluster: Cluster, step: Step, about: About) -> bool:
    """A window group with a drafter's layers has blocks narrower than a hit's unit. The longest hit
    and the dropped block together have fewer blocks than a whole window and the dropped block."""
    cfg, admitted = cluster.engine(about.engine), admission(step, about)
    if admitted is None:
        return False
    best = longest(cluster, admitted)
    return admitted.hit < best and any(
        best // g.block_size < ceil((g.window - 1) / g.block_size)
        for g in cfg.groups
        if g.kind == "window" and cfg.drops_match(g) and g.block_size < cfg.hit_unit
    )


DEVIATION = Deviation(
    name="window_prefix_aligned_before_drop",
    in_vllm="SlidingWindowManager.find_longest_cache_hit",
    says=(
        "with a drafter in a window group of narrow blocks, a prefix shorter than the window "
        "hits one unit less than it could"
    ),
    signatures=seen("hit_is_the_longest", "Schedule") | seen("repeated_prompt_hits", "Schedule"),
    at_work=at_work,
)
