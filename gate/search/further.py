"""Further random episodes of clusters that were driven before."""

from collections.abc import Iterable

from kvproof.gate.difference.workload import Episodes, Follow
from kvproof.gate.search import workloads
from kvproof.model.config import Cluster


class Further:
    """Clusters that were driven, and how many further workloads each has had."""

    def __init__(self, seed: int) -> None:
        self.parts: dict[Cluster, int] = {}
        self._seed = seed
        self._first: dict[Cluster, Follow | Episodes] = {}

    def add(self, workload: Follow | Episodes) -> Cluster:
        """Note a workload that was driven. Returns its cluster, with the jobs that it carries."""
        cluster = workload.cluster.carrying()
        self._first.setdefault(cluster, workload)
        self.parts.setdefault(cluster, 0)
        return cluster

    def next(self, clusters: Iterable[Cluster]) -> Episodes:
        """The next workload of the one of these clusters that has had the fewest."""
        cluster = min(clusters, key=self.parts.__getitem__)
        part = self.parts[cluster]
        self.parts[cluster] += 1
        return workloads.like(self._first[cluster], self._seed, part)
