"""One group answering 0 once collapses the search for a common hit to 0 (#51771): correct, and
useless. Nothing fails, only the hit rate."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant, Reasons
from kvproof.model import capacity, counts, groups
from kvproof.model.config import Cluster
from kvproof.model.step import Admission, Step


def longest(cluster: Cluster, admission: Admission) -> int:
    """The longest hit that the cache held in every group, by trying all. One that ends inside a
    block takes a copy, for which there must be room in an engine of this size."""
    cfg = cluster.engine(admission.engine)
    tokens = admission.tokens
    keys = {key for key, blocks in admission.cached if blocks}
    top = counts.longest_hit_tokens(len(tokens), cfg.hit_unit, cfg.proof)
    for length in range(top, 0, -cfg.hit_unit):
        if cfg.partial and not capacity.has_room_for_hit(cfg, length, len(tokens)):
            continue
        if all(
            any((i, prefix) in keys for prefix in groups.prefixes_for(g, tokens, length, p))
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
