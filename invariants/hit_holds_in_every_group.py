"""#44243 took the deepest hit of any group: attention blocks that had been evicted were treated as
computed because a Mamba state behind them survived (#46453)."""

from collections.abc import Iterator

from kvproof.invariants.hits import missing
from kvproof.invariants.invariant import Invariant
from kvproof.model.because import Because, because
from kvproof.model.config import Cluster
from kvproof.model.severity import Severity
from kvproof.model.step import Step


def check(cluster: Cluster, step: Step) -> Iterator[Because]:
    """Every group holds what the hit needs, or the connector brings it."""
    for admission in step.effects.admissions:
        engine = cluster.engine(admission.engine)
        keys = {key for key, blocks in admission.cached if blocks}
        for index, prefix in missing(engine, keys, admission.tokens, admission.hit):
            if admission.external and engine.groups[index].kind != "full":
                continue
            yield because(
                f"{admission.request} hits {admission.hit} tokens on {admission.engine}",
                f"group {index} has no block for prefix {prefix!r}",
                engine=admission.engine,
                request=admission.request,
                group=index,
            )


INVARIANT = Invariant(
    id="hit_holds_in_every_group",
    name="a prefix hit holds in every group, or the connector brings what is missing",
    origin="vllm#46453",
    severity=Severity.WRONG_TOKENS,
    check=check,
    killed_by="deepest_group_wins",
)
