"""One group answering 0 once collapses the search for a common hit to 0 (#51771): correct, and
useless. Nothing fails, only the hit rate."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant, Reasons
from kvproof.model import counts, groups
from kvproof.model.config import Cluster
from kvproof.model.step import Admission, Step


def longest(cluster: Cluster, admission: Admission) -> int:
    """The longest hit that the cache held in every group, by trying all."""
    cfg = cluster.engine(admission.engine)
    keys = {key for key, blocks in admission.cached if blocks}
    top = counts.longest_hit_tokens(len(admission.tokens), cfg.hit_unit, cfg.proof)
    for length in range(top, 0, -cfg.hit_unit):
        if all(
            (i, admission.tokens[: (p + 1) * g.block_size]) in keys
            for i, g in enumerate(cfg.groups)
            for p in groups.blocks_matched(g, length)
        ):
            return length
    return 0


def check(cluster: Cluster, step: Step) -> Iterator[Reasons]:
    """No admission hits less than all groups hold."""
    for admission in step.effects.admissions:
        if not cluster.engine(admission.engine).prefix_caching:
            continue
        best = longest(cluster, admission)
        if admission.hit < best:
            yield (
                f"all groups of {admission.engine} hold {best} tokens of {admission.request}",
                f"it hits {admission.hit}",
            )


INVARIANT = Invariant(
    id="hit_is_the_longest",
    name="a prefix hit is as long as the longest that holds in every group",
    born_of="vllm#51771",
    check=check,
    teeth="hit_collapses_with_three_groups",
)
