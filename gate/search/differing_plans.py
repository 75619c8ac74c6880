"""Where base and head behave differently with a connector: the kinds of cache groups in which a
change acts. These have further plans, as the clusters of `differing` have further episodes."""

from collections.abc import Iterator

from kvproof.gate.difference.result import pairs
from kvproof.gate.difference.workload import Plays
from kvproof.gate.search import workloads
from kvproof.gate.search.comparison import Comparison

PARTS = 4
"""The number of workloads of random plans that a kind of cache groups has with a connector."""

PARTS_IN_ALL = 16
"""The number of all such workloads."""


class DifferingPlans:
    """The connectors and kinds of cache groups in which base and head behave differently."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self._parts: dict[tuple[str, str], int] = {}
        self._looked_at = 0

    @property
    def due(self) -> bool:
        """Whether further workloads are due."""
        self._parts = dict.fromkeys(self._new(), 0) | self._parts
        parts = self._parts.values()
        return any(each < PARTS for each in parts) and sum(parts) < PARTS_IN_ALL

    def take(self, number: int) -> list[Plays]:
        """The next workloads, those of the kinds with the fewest so far; none where none is due."""
        return [self._next() for _ in range(number) if self.due]

    def _next(self) -> Plays:
        connector, kinds = min(self._parts, key=self._parts.__getitem__)
        self._parts[connector, kinds] += 1
        part = self._parts[connector, kinds]
        return workloads.of_kinds(connector, kinds, self._comparison.seed, part)

    def _new(self) -> Iterator[tuple[str, str]]:
        both = self._comparison
        names, self._looked_at = both.names[self._looked_at :], len(both.names)
        for name in names:
            each, base, head = both.workloads[name], both.on_base[name], both.on_head[name]
            if isinstance(each, Plays):
                both_ran = zip(head.kinds, pairs(base, head), strict=False)
                differs = {kinds for kinds, pair in both_ran if pair.parts_at is not None}
                yield from ((each.connector, kinds) for kinds in sorted(differs))
