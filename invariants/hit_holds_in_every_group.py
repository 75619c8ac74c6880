"""#44243 took the deepest hit of any group: attention blocks that had been evicted were treated as
computed because a Mamba state behind them survived (#46453)."""

from collections.abc import Iterator

from kvproof.invariants.invariant import Invariant, Reasons
from kvproof.model import groups
from kvproof.model.config import Cluster
from kvproof.model.step import Step


def check(cluster: Cluster, step: Step) -> Iterator[Reasons]:
    """Every group holds what the hit needs, or the connector brings it."""
    for admission in step.effects.admissions:
        cached = dict(admission.cached)
        for index, group in enumerate(cluster.engine(admission.engine).groups):
            if admission.external and group.kind != "full":
                continue
            for position in groups.blocks_matched(group, admission.hit):
                prefixes = groups.prefixes_for(group, admission.tokens, admission.hit, position)
                if not any(cached.get((index, prefix)) for prefix in prefixes):
                    yield (
                        f"{admission.request} hits {admission.hit} tokens on {admission.engine}",
                        f"group {index} has no block for prefix {prefixes[-1]!r}",
                    )


INVARIANT = Invariant(
    id="hit_holds_in_every_group",
    name="a prefix hit holds in every group, or the connector brings what is missing",
    born_of="vllm#46453",
    check=check,
    teeth="deepest_group_wins",
)
