"""Where base and head behave differently: the clusters in which a change acts.

Most runs that execute a changed statement are the same on both sides. Where one is not, the change
acts, and what it breaks is near. So these clusters are driven further.
"""

from collections.abc import Iterator

from kvproof.gate.difference.result import Result, pairs
from kvproof.gate.difference.workload import Episodes, Follow
from kvproof.gate.search.comparison import Comparison
from kvproof.gate.search.further import Further
from kvproof.model.config import Cluster

PARTS = 16
"""The number of workloads of random episodes that such a cluster has, beside its first."""

PARTS_IN_ALL = 80
"""The number of all such clusters."""


class Differing:
    """The clusters of a comparison in which base and head behave differently."""

    def __init__(self, comparison: Comparison, further: Further) -> None:
        self._comparison = comparison
        self._further = further
        self._clusters: dict[Cluster, None] = {}
        self._looked_at = 0

    @property
    def due(self) -> bool:
        """Whether further workloads are due."""
        self._look()
        parts = [self._further.parts[cluster] for cluster in self._clusters]
        return any(each < PARTS for each in parts) and sum(parts) < PARTS_IN_ALL

    def take(self, number: int) -> list[Episodes]:
        """The next workloads, those of the clusters with the fewest so far; none where none is
        due."""
        return [self._further.next(self._clusters) for _ in range(number) if self.due]

    def _look(self) -> None:
        self._clusters |= dict.fromkeys(map(self._further.add, self._new()))

    def _new(self) -> Iterator[Follow | Episodes]:
        both = self._comparison
        names, self._looked_at = both.names[self._looked_at :], len(both.names)
        for name in names:
            each, base, head = both.workloads[name], both.on_base[name], both.on_head[name]
            if isinstance(each, Follow | Episodes) and unlike(base, head):
                yield each


def unlike(base: Result, head: Result) -> bool:
    """Whether both could be driven, and did not behave the same."""
    return any(pair.parts_at is not None for pair in pairs(base, head))
