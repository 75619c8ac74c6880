"""Fresh runs: random runs of the kinds in which the search has seen something, which both sides
take. What chance made in the search hardly comes again in these: a sign test says so."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import comb
from typing import Protocol

from kvproof.gate.difference.record import Need, Pair
from kvproof.gate.difference.result import Result, pairs
from kvproof.gate.difference.workload import Workload
from kvproof.gate.search import workloads

APART = 900_000
"""The seeds of fresh runs are so far from those of the search."""

LIKELY, CERTAIN = 0.05, 0.01
"""How likely chance may be in the runs of the search, and in the fresh runs."""


def by_chance(more: int, less: int) -> float:
    """How likely it is that of so many runs that differ at least `more` differ in one direction, if
    both directions are equally likely: a sign test."""
    runs = more + less
    return float(sum(comb(runs, number) for number in range(more, runs + 1)) / 2**runs)


class Runs:
    """How often head alone (`more`), or base alone (`less`), has a need. Each is counted with those
    like it, too: breaks of one check in whatever shape, and what needs excuses of one kind."""

    def __init__(self) -> None:
        self.more: Counter[Need] = Counter()
        self.less: Counter[Need] = Counter()

    def add(self, pair: Pair) -> None:
        """Count a run."""
        self.more.update(_with_like(pair.new_on_head))
        self.less.update(_with_like(Pair(pair.head, pair.base).new_on_head))

    def join(self, other: "Runs") -> None:
        """Count the runs that another one has counted."""
        self.more.update(other.more)
        self.less.update(other.less)

    def chance(self, need: Need) -> float:
        """How likely chance alone shows a need so much more often on head than on base. Of a break
        also in any shape: head may have changed how a defect of base looks. But one death is not
        another."""
        both = {need} if need.excuses or need.death else {need, need.like}
        return max(by_chance(self.more[each], self.less[each]) for each in both)


def _with_like(needs: Iterable[Need]) -> set[Need]:
    """These needs, and for each what is like it."""
    found = {*needs}
    return found | {each.like for each in found}


class TakesRuns(Protocol):
    """What takes runs on base and on head: the comparison."""

    seed: int

    def sides(self, workload: Workload) -> tuple[Result, Result]:
        """What base and head show of a workload."""


class FreshRuns:
    """The fresh runs of some kinds. Each kind is one of the workload that showed something."""

    def __init__(self, comparison: TakesRuns, kinds: Sequence[Workload]) -> None:
        self.taken: list[Pair] = []
        self._comparison = comparison
        self._kinds = kinds
        self._parts = 0

    def take(self) -> int:
        """Take `workloads.EPISODES` more of each kind. Returns how many there were: none of what a
        side cannot drive. Raises Ended."""
        seed, part = self._comparison.seed, APART + self._parts
        self._parts += 1
        before = len(self.taken)
        for number, kind in enumerate(self._kinds, 1):
            name = f"fresh runs {number}, part {self._parts}"
            self.taken += pairs(*self._comparison.sides(workloads.near(kind, name, seed, part)))
        return len(self.taken) - before
