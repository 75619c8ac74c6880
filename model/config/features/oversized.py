"""Prompts that the pool cannot hold."""

from kvproof.model.config.cluster import Cluster
from kvproof.model.config.feature import Exclusion, Feature

FEATURE = Feature(
    id="oversized",
    section="traffic",
    name="oversized prompts",
    words="prompts that the pool cannot hold",
    options="`oversized`",
    of=Cluster,
    used=lambda cluster: cluster.oversized,
    off="oversized false",
    exclusions=(Exclusion(of=Cluster, beside=("pd",), live=True),),
    draw=lambda settings: settings.on_cluster(oversized=True),
)
