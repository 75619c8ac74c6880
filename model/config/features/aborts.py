"""Users who abort their request before it is finished."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="aborts",
    section="traffic",
    name="aborts",
    words="requests that are aborted",
    options="`aborts`",
    of=Cluster,
    used=lambda cluster: cluster.aborts,
    draw=lambda settings: settings.on_cluster(aborts=True),
    chance=0.5,
)
