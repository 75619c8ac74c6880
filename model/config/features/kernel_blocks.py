"""P and D have unequal numbers of kernel blocks in a block."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.feature import Exclusion, Feature
from kvproof.model.config.random_settings import RandomSettings

RATIOS = (1, 2, 4)
"""Kernel blocks per block of an engine, in a random cluster."""


def _begins_inside(cluster: Cluster) -> bool:
    """P keeps whole blocks of a window. Where a block of D can begin before them, inside a block of
    P, neither engine has the KV for its first part, and D would cache the block."""
    return cluster.prefill.physical_per_logical % cluster.decode.physical_per_logical > 0


def _draw(settings: RandomSettings) -> None:
    settings.kernel_blocks = (settings.choose(RATIOS), settings.choose(RATIOS))
    if any(settings.aligned()):  # then vLLM's handshake refuses a D that caches prefixes
        settings.decode.update(prefix_caching=False, match_unit=0, prefix_checkpoint=False)


FEATURE = Feature(
    id="kernel_blocks",
    section="P/D",
    name="unequal physical_per_logical",
    words="unequal kernel blocks per block of P and D",
    options="`physical_per_logical`",
    of=Cluster,
    used=lambda cluster: len({e.physical_per_logical for e in cluster.engines}) > 1,
    off="one physical_per_logical for both engines",
    exclusions=(
        Exclusion(
            of=Cluster,
            beside=("mamba",),
            where=lambda cluster: cluster.decode.prefix_caching,
            only="while D caches prefixes",
            because="which vLLM's handshake refuses where D caches prefixes",
            instead="prefix_caching false for D, or no Mamba group",
        ),
        Exclusion(
            of=Cluster,
            beside=("windows",),
            where=_begins_inside,
            only="unless P's is a multiple of D's",
            because="where P keeps fewer tokens than a block of D may need",
            instead="a physical_per_logical of P that is a multiple of D's, or no window group",
        ),
        Exclusion(
            of=Cluster,
            beside=("push",),
            because="and vLLM then ends no transfer: D's worker dies at the end of the first one, "
            "or P's worker never begins it",
        ),
        Exclusion(of=Cluster, beside=("follow_up_turns",), live=True),
    ),
    idle_without=("pd",),
    draw=_draw,
)
