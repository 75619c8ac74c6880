"""Fresh runs: random runs of the kinds in which the search has seen something, which both sides
take. What chance made in the search hardly comes again in these: a sign test says so."""

from collections.abc import Mapping, Sequence
from math import comb
from typing import Protocol

from kvproof.gate.difference.record import Pair
from kvproof.gate.difference.workload import Workload
from kvproof.gate.search import workloads

APART = 900_000
"""The seeds of fresh runs are so far from those of the search."""


def by_chance(more: int, less: int) -> float:
    """How likely it is that of so many runs that differ at least `more` differ in one direction, if
    both directions are equally likely: a sign test."""
    runs = more + less
    return float(sum(comb(runs, number) for number in range(more, runs + 1)) / 2**runs)


class TakesPairs(Protocol):
    """What takes runs on base and on head: the comparison."""

    seed: int

    def pairs_of(self, workloads: Sequence[Workload]) -> Mapping[str, Sequence[Pair]]:
        """The runs of these workloads as both take them."""


class FreshRuns:
    """The fresh runs of some kinds. Each kind is one of the workload that showed something."""

    def __init__(self, comparison: TakesPairs, kinds: Sequence[Workload]) -> None:
        self.taken: list[Pair] = []
        self._comparison = comparison
        self._kinds = kinds
        self._parts = 0

    def take(self) -> int:
        """Take `workloads.EPISODES` more of each kind. Returns how many there were: none of what a
        side cannot drive. Raises Ended."""
        seed, part = self._comparison.seed, APART + self._parts
        drawn = [
            workloads.near(kind, f"fresh runs {number}, part {self._parts + 1}", seed, part)
            for number, kind in enumerate(self._kinds, 1)
        ]
        self._parts += 1
        taken = [pair for of_one in self._comparison.pairs_of(drawn).values() for pair in of_one]
        self.taken += taken
        return len(taken)
