"""Clusters with room: nothing is evicted there, unless a long prompt comes.

Most presets and random clusters have small pools, in which a block more or less decides. What a
cache loses by mistake is not missed there: it would be evicted before it is asked for again.
"""

from msgspec.structs import replace

from kvproof.model.capacity import needed_blocks
from kvproof.model.config import Cluster

SUFFIX = ":roomy"
"""The suffix of a cluster's name that stands for the same cluster with room."""

REQUESTS, TOKENS = 4, 16
"""A cluster with room can hold this number of requests, each of this number of tokens."""


def has_room(cluster: Cluster) -> bool:
    """Whether each pool of the cluster has at least this many blocks."""
    return roomy(cluster) == cluster


def roomy(cluster: Cluster) -> Cluster:
    """The cluster with pools of at least this many blocks; the cluster itself where all pools have
    them."""
    engines = tuple(
        replace(e, num_blocks=max(e.num_blocks, 1 + REQUESTS * needed_blocks(e, TOKENS)))
        for e in cluster.engines
    )
    if engines == cluster.engines:
        return cluster
    return replace(cluster, name=cluster.name.removesuffix(SUFFIX) + SUFFIX, engines=engines)
