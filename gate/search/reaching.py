"""Where a change is executed: the clusters that reach it, and random clusters that resemble them.

Most clusters reach most changes. A change that few clusters reach needs most of the search there:
in further episodes of these, and in random clusters with the same features.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from math import log

from kvproof.gate.difference.workload import Episodes, Follow, Workload
from kvproof.gate.search.comparison import Comparison
from kvproof.gate.search.further import Further
from kvproof.model.config import Cluster
from kvproof.model.config.features.registry import used_by

CANDIDATES = 20
"""The number of random clusters of which the one that resembles those near the change is driven."""

PRIOR = 4
"""The number of assumed clusters near the change that are like all others, beside the clusters that
were seen: what few clusters have in common may be chance."""


class Reaching:
    """Which clusters of a comparison execute the change of each of the `changed` functions, and
    have each outcome of changed conditions."""

    def __init__(self, comparison: Comparison, further: Further, changed: Collection[str]) -> None:
        self._comparison = comparison
        self._further = further
        self._clusters: dict[str, dict[Cluster, None]] = {key: {} for key in changed}
        self._driven: dict[Cluster, None] = {}
        self._looked_at = 0

    def take(self, number: int) -> list[Workload]:
        """Further episodes of the clusters that execute what the fewest clusters execute, the
        least driven first; none where no cluster executes a change."""
        rarest = self._rarest()
        return [self._further.next(rarest) for _ in range(number) if rarest]

    def alike(self, random: Iterator[Episodes]) -> Iterator[Episodes]:
        """Random clusters without end: each is the one of `CANDIDATES` that most resembles those
        that execute what the fewest execute."""
        while True:
            yield max(islice(random, CANDIDATES), key=self._likeness())

    def _rarest(self) -> Collection[Cluster]:
        """The clusters that execute the change of the function that the fewest execute, or have the
        outcome that the fewest have."""
        self._look()
        reached = filter(None, self._clusters.values())
        return min(reached, key=len, default=())

    def _likeness(self) -> Callable[[Episodes], float]:
        """How much more often than in all clusters the features that a workload has, and those that
        it lacks, are in the clusters that execute the change: the sum of the logarithms of these
        ratios."""
        rarest = self._rarest()
        here, everywhere = _features(rarest), _features(self._driven)

        def likeness(workload: Episodes) -> float:
            features, total = used_by(workload.cluster), 0.0
            for each in {*everywhere, *features}:
                present = each in features
                usual = (_alike(present, everywhere[each], self._driven) + 1) / (
                    len(self._driven) + 2
                )
                near = _alike(present, here[each], rarest) + PRIOR * usual
                total += log(near / (len(rarest) + PRIOR) / usual)
            return total

        return likeness

    def _look(self) -> None:
        both = self._comparison
        names, self._looked_at = both.names[self._looked_at :], len(both.names)
        for name in names:
            each, sides = both.workloads[name], (both.on_base[name], both.on_head[name])
            if not isinstance(each, Follow | Episodes) or not any(e.watched for e in sides):
                continue
            cluster = each.cluster.carrying()
            self._further.add(cluster, each)
            self._driven[cluster] = None
            for key in self._clusters.keys() & both.reached(name):
                self._clusters[key][cluster] = None


def _features(clusters: Collection[Cluster]) -> Counter[str]:
    """How many of these clusters have each feature."""
    return Counter(feature for cluster in clusters for feature in used_by(cluster))


def _alike(present: bool, having: int, clusters: Collection[Cluster]) -> int:
    """How many of these clusters, of which so many have a feature, have it too, or lack it too."""
    return having if present else len(clusters) - having
