"""With three or more groups, one group answered 0 once, and the search for a common hit ended at 0
tokens (vllm#51771). All answers stay correct; only the hit rate falls."""

from collections.abc import Iterator

from kvproof.invariants.hits import has_room, may_end_at, missing
from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.step import Admission, Step
from kvproof.model.subjects import Subject


def longest(cluster: Cluster, admission: Admission) -> int:
    """The longest hit that every group can serve, found by trying all lengths. A hit that ends
    inside a block needs a copy of that block, so an engine of this size must have room for the
    copy; and a block that ends with the last token can serve it only under a shorter key, although
    P knows the token that it dropped."""
    cfg = cluster.engine(admission.engine)
    tokens = admission.tokens + ("" if cfg.partial_block_hits else admission.dropped)
    keys = {key for key, blocks in admission.cached if blocks}
    for hit in range(len(admission.tokens) - 1, 0, -1):
        if not may_end_at(cfg, hit, admission.external > 0) or any(missing(cfg, keys, tokens, hit)):
            continue
        if not cfg.partial_block_hits or has_room(cfg, hit, len(tokens)):
            return hit
    return 0


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """No admission hits fewer tokens than all groups have cached."""
    for admission in step.effects.admissions:
        if not cluster.engine(admission.engine).prefix_caching:
            continue
        best = longest(cluster, admission)
        if admission.hit < best:
            yield because(
                reason(
                    "groups_have",
                    "all groups of {engine} have {best} tokens of {request} cached",
                    best=best,
                ),
                reason("hits", "the request hits {hit} tokens", hit=admission.hit),
                engine=admission.engine,
                request=admission.request,
            )


INVARIANT = Invariant(
    id="hit_is_the_longest",
    name="a prefix hit is the longest hit that every group can serve",
    origin="vllm#51771",
    severity=Severity.LOST_PERFORMANCE,
    check=check,
    needs=(Need.LOOKUPS,),
    subjects=(Subject.HIT, Subject.COMPUTED),
    killed_by="hit_collapses_with_three_groups",
)
