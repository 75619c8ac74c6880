"""Resets of the prefix cache, of an idle engine or also under load."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="resets",
    section="prefix cache",
    name="resets",
    words="resets, also under load",
    options="`resets`, `resets_any_time`",
    of=Cluster,
    used=lambda cluster: cluster.resets or cluster.resets_any_time,
    draw=lambda settings: settings.on_cluster(
        resets=True, resets_any_time=settings.choose((False, True))
    ),
    chance=0.25,
)
