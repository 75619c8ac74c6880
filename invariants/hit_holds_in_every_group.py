"""vllm#44243 took the longest hit of any group as the hit of the request. A Mamba state had
survived behind attention blocks that were evicted, and vLLM treated these attention tokens as
computed (vllm#46453). The request then attended to blocks with other content."""

from collections.abc import Iterator

from kvproof.invariants.hits import missing
from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because, reason
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.severity import Severity
from kvproof.model.step import Step
from kvproof.model.subjects import Subject


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """Every group has the cached blocks that the hit needs, or the connector loads them."""
    for admission in step.effects.admissions:
        engine = cluster.engine(admission.engine)
        keys = {key for key, blocks in admission.cached if blocks}
        tokens = admission.tokens + admission.dropped
        for index, prefix in missing(engine, keys, tokens, admission.hit):
            if admission.external and engine.groups[index].kind != "full":
                continue
            yield because(
                reason("hits", "{request} hits {hit} tokens on {engine}", hit=admission.hit),
                reason(
                    "has_no_block",
                    "group {group} has no cached block for prefix {missing:quoted}",
                    missing=prefix,
                ),
                engine=admission.engine,
                request=admission.request,
                group=index,
            )


INVARIANT = Invariant(
    id="hit_holds_in_every_group",
    name=(
        "every group has the blocks that a prefix hit needs, or the connector loads the missing "
        "ones"
    ),
    origin="vllm#46453",
    severity=Severity.WRONG_TOKENS,
    check=check,
    needs=(Need.LOOKUPS,),
    subjects=(Subject.HIT, Subject.COMPUTED, Subject.TABLE),
    killed_by="deepest_group_wins",
)
