"""Further random runs of the kinds that were driven before: of clusters, and of connectors with
cache groups of some kinds.

Most runs that execute a changed statement are the same on both sides. Where base and head part, the
change acts, and what it breaks is near. So these kinds are driven further.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from kvproof.gate.difference.workload import Episodes, Follow, Plays, Workload
from kvproof.gate.search import workloads
from kvproof.gate.search.comparison import Comparison
from kvproof.model.config import Cluster


class WithGroups(NamedTuple):
    """A connector with cache groups of some kinds ("full+window")."""

    connector: str
    kinds: str


Kind: TypeAlias = Cluster | WithGroups
"""What random runs are of."""

PARTS: dict[type[Kind], int] = {Cluster: 16, WithGroups: 4}
"""The number of workloads of random runs that a kind has where both sides part in it."""

PARTS_IN_ALL: dict[type[Kind], int] = {Cluster: 80, WithGroups: 16}
"""The number of all such workloads of clusters, and of connectors."""


class Further:
    """The kinds that were driven, and how many further workloads each has had."""

    def __init__(self, seed: int) -> None:
        self.parts: dict[Kind, int] = {}
        self._seed = seed
        self._first: dict[Kind, Workload] = {}

    def add(self, kind: Kind, workload: Workload) -> None:
        """Note a workload of this kind that was driven."""
        self._first.setdefault(kind, workload)
        self.parts.setdefault(kind, 0)

    def next(self, kinds: Iterable[Kind]) -> Workload:
        """The next workload of the one of these kinds that has had the fewest."""
        kind = min(kinds, key=self.parts.__getitem__)
        first, part = self._first[kind], self.parts[kind]
        self.parts[kind] += 1
        if isinstance(first, Plays):
            name = f"plans for {first.connector} with {first.kinds}, part {part + 1}"
            return workloads.near(first, name, self._seed, part, workloads.PLAYS)
        name = f"episodes like {first.name}, part {part + 1}"
        return workloads.near(first, name, self._seed, part)


class Differing:
    """The kinds in which base and head part."""

    def __init__(self, comparison: Comparison, further: Further) -> None:
        self._comparison = comparison
        self._further = further
        self._kinds: dict[Kind, None] = {}
        self._looked_at = 0

    def take(self, number: int) -> list[Workload]:
        """The next workloads, those of the kinds with the fewest so far; none where each has had
        enough."""
        self._look()
        found: list[Workload] = []
        while len(found) < number and (kinds := self._due(WithGroups) or self._due(Cluster)):
            found.append(self._further.next(kinds))
        return found

    def _due(self, of: type[Kind]) -> list[Kind]:
        """The clusters, or the connectors, as long as one of them is to be driven further."""
        kinds = [each for each in self._kinds if isinstance(each, of)]
        parts = [self._further.parts[each] for each in kinds]
        due = any(each < PARTS[of] for each in parts) and sum(parts) < PARTS_IN_ALL[of]
        return kinds if due else []

    def _look(self) -> None:
        both = self._comparison
        names, self._looked_at = both.names[self._looked_at :], len(both.names)
        for name in names:
            for kind, workload in self._parting(name):
                self._further.add(kind, workload)
                self._kinds[kind] = None

    def _parting(self, name: str) -> Iterator[tuple[Kind, Workload]]:
        """The kinds of the runs of a workload in which the sides part."""
        both = self._comparison
        each = both.workloads[name]
        for number, pair in enumerate(both.pairs(name)):
            if pair.parts_at is None:
                continue
            if isinstance(each, Follow | Episodes):
                yield each.cluster.carrying(), each
            elif isinstance(each, Plays):
                kinds = both.on_head[name].kinds[number]
                yield WithGroups(each.connector, kinds), replace(each, kinds=kinds)
