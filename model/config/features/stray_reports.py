"""A worker's report that no request waits for."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="stray_reports",
    section="P/D",
    name="stray reports",
    words="a worker's report that no request waits for",
    options="`stray`",
    of=Cluster,
    used=lambda cluster: cluster.stray,
    off="stray false",
    needs=("pd",),
    draw=lambda settings: settings.on_cluster(stray=True),
)
