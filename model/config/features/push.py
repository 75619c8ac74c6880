"""P/D over NIXL push: P writes to the blocks of D."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="push",
    section="P/D",
    name="push",
    words="P/D over NIXL push",
    options="`transfer`",
    of=Cluster,
    used=lambda cluster: cluster.pushes,
    off="transfer pull",
    needs=("pd",),
    draw=lambda settings: settings.on_cluster(transfer="push"),
)
