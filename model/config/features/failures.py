"""Transfers, or loads of a store, that fail."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.feature import Exclusion, Feature
from kvproof.model.config.random_settings import RandomSettings


def _of_a_store(cluster: Cluster) -> bool:
    """Whether loads of a store fail. Of a pair with stores, transfers fail."""
    return not cluster.disaggregated


def _of_more_than_one_full_group(cluster: Cluster) -> bool:
    return _of_a_store(cluster) and [g.kind for g in cluster.prefill.groups] != ["full"]


def _draw(settings: RandomSettings) -> None:
    settings.on_cluster(failures=settings.choose((1, 2)) if settings.pair else 1)
    if not settings.pair:
        settings.on_engines(store=True)


FEATURE = Feature(
    id="failures",
    section="P/D",
    name="failing loads",
    words="P/D transfers, or loads of a store, that fail; both policies of failure",
    options="`failures`, `load_failure`",
    of=Cluster,
    used=lambda cluster: cluster.failures > 0,
    off="failures 0",
    exclusions=(
        Exclusion(
            of=Cluster,
            beside=("store",),
            where=_of_more_than_one_full_group,
            only="unless there is one group, of full attention, or P/D",
            because="and vLLM's report of the failed blocks means something only for one group, "
            "of full attention",
            instead="one full group, or failures 0",
        ),
        Exclusion(
            of=Cluster,
            beside=("store", "drafts", "async_scheduling"),
            where=_of_a_store,
            only="unless there is P/D",
        ),
        Exclusion(of=Cluster, beside=("sessions", "async_scheduling"), live=True),
    ),
    draw=_draw,
)
