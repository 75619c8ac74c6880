"""Scouts: random clusters that are only looked at, for what no run executed so far.

A statement that one random cluster in a hundred executes is hardly met while each cluster is driven
with all checks. To look at one takes less: one episode in place of several, and no check. Those
that execute something of what is missing are driven then, with the same seed, so they execute it
again.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice

from msgspec.structs import replace

from kvproof.gate.difference.order import touched
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Episodes
from kvproof.gate.search import named_features, workloads
from kvproof.gate.search.comparison import Comparison

SCOUTS = 400
"""The number of clusters that are looked at."""

AT_ONCE = 40
"""The number of them between two looks at what was found."""

FIRST = 500_000
"""The number of the first cluster: others than the search draws by itself."""

DRIVEN = 4
"""The number of clusters that are driven for one missing thing."""


class Scouts:
    """The scouts of a comparison. Every other one is a cluster with more of the `named` features
    than others; `left` is the number of those to come."""

    def __init__(self, comparison: Comparison, named: frozenset[str]) -> None:
        self.left = SCOUTS
        self.found: list[Episodes] = []
        self._comparison = comparison
        self._clusters = _clusters(comparison.seed, named)
        self._times: Counter[str] = Counter()

    def look(self, missing: Collection[str]) -> None:
        """Look at the next clusters. `missing` are keys of functions, of statements and of
        outcomes. Raises Ended."""
        these = [*islice(self._clusters, min(AT_ONCE, self.left))]
        self.left -= len(these)
        looks = [replace(each, name=f"a look at {each.name}", episodes=1) for each in these]
        for each, both in zip(these, self._comparison.glance(looks), strict=True):
            shown = [key for key in _shown(*both, missing) if self._times[key] < DRIVEN]
            if shown:
                self._times.update(shown)
                self.found.append(each)

    def take(self) -> list[Episodes]:
        """The clusters that were found since the last time."""
        found, self.found = self.found, []
        return found


def _shown(base: Result, head: Result, missing: Collection[str]) -> frozenset[str]:
    """What a cluster shows of what is missing; nothing where a side cannot be driven."""
    if base.reason or head.reason:
        return frozenset()
    reached = {*base.reached, *head.reached}
    return touched(reached, missing) | reached.intersection(missing)


def _clusters(seed: int, named: frozenset[str]) -> Iterator[Episodes]:
    random = workloads.of_random_clusters(seed, FIRST)
    preferred = named_features.preferred(random, named)
    for two in zip(random, preferred, strict=False):
        yield from two
