"""One group answering 0 once collapses the search for a common hit to 0 (#51771): correct, and
useless. Nothing fails, only the hit rate."""

from collections.abc import Iterator

from kvproof.invariants.hits import has_room, may_end_at, missing
from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.step import Admission, Step


def longest(cluster: Cluster, admission: Admission) -> int:
    """The longest hit that the cache held in every group, by trying all. One that ends inside a
    block takes a copy, for which there must be room in an engine of this size."""
    cfg = cluster.engine(admission.engine)
    tokens = admission.tokens
    keys = {key for key, blocks in admission.cached if blocks}
    for hit in range(len(tokens) - 1, 0, -1):
        if not may_end_at(cfg, hit) or any(missing(cfg, keys, tokens, hit)):
            continue
        if not cfg.partial_block_hits or has_room(cfg, hit, len(tokens)):
            return hit
    return 0


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """No admission hits less than all groups hold."""
    for admission in step.effects.admissions:
        if not cluster.engine(admission.engine).prefix_caching:
            continue
        best = longest(cluster, admission)
        if admission.hit < best:
            yield because(
                f"all groups of {admission.engine} hold {best} tokens of {admission.request}",
                f"it hits {admission.hit}",
                engine=admission.engine,
                request=admission.request,
            )


INVARIANT = Invariant(
    id="hit_is_the_longest",
    name="a prefix hit is as long as the longest that holds in every group",
    origin="vllm#51771",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    killed_by="hit_collapses_with_three_groups",
)
