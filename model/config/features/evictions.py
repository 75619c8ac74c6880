"""Cached blocks that an external call evicts."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="evictions",
    section="prefix cache",
    name="evictions",
    words="cached blocks evicted from outside",
    options="`evictions`",
    of=Cluster,
    used=lambda cluster: cluster.evictions,
    draw=lambda settings: settings.on_cluster(evictions=True),
    chance=0.3,
)
