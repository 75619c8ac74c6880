"""Reads whose end is never reported; P's lease ends instead."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.feature import Feature

FEATURE = Feature(
    id="lost_reads",
    section="P/D",
    name="lost reads",
    words="lost reads, and leases that end",
    options="`losses`",
    of=Cluster,
    used=lambda cluster: cluster.losses,
    idle_without=("pd",),
    draw=lambda settings: settings.on_cluster(losses=True),
)
