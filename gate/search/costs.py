"""What costs more on head than on base: a short list of quantities, counted in every run that both
took to the end.

A quantity costs more where head counts worse than base in significantly more runs than it counts
better, and does so again in fresh runs: a sign test. Some runs may count better: after the first
difference the sides go ways of their own, and what is not hit early may be hit later.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from msgspec.structs import replace

from kvproof.gate.difference.record import COUNTED, COUNTER, Differences, Pair
from kvproof.gate.difference.result import pairs
from kvproof.gate.difference.workload import Episodes, Follow, Loops, Plays, Starts, Workload
from kvproof.gate.search import workloads
from kvproof.gate.search.comparison import Comparison
from kvproof.gate.search.needs import by_chance

LIKELY = 0.05 / (len(COUNTED) - len(COUNTER))
"""How likely chance may be in the runs of the search. One of so many quantities is worse by chance
in one of 20 searches: with eight runs that are worse, none may be better."""

AGAIN = 0.04
"""How likely chance may be in the fresh runs: five that are worse, and none that is better."""

OPEN_MAX = 60
"""The number of fresh runs that differ, in one direction or the other, after which a quantity is
not looked at any more."""

FRESH = 8
"""The number of workloads with fresh runs that are driven before these are counted again."""

APART = 900_000
"""The seeds of the fresh runs are so far from those of the search."""


class Counted(NamedTuple):
    """A run that both sides took to the end: the name of its workload, and its number there."""

    workload: str
    number: int
    pair: Pair


class Cost(NamedTuple):
    """A quantity in which head is worse in `worse` of `runs` runs, and better in `better`. `base`
    and `head` are its sums over all of these that differ, and `smallest` is the shortest that is
    worse."""

    what: str
    worse: int
    better: int
    runs: int
    base: int
    head: int
    smallest: Counted


class Weighed(NamedTuple):
    """The quantities that cost more, and those, in words, that did so in the search alone."""

    costs: list[Cost]
    unconfirmed: list[str]


class Difference(NamedTuple):
    """A quantity that differs in some of `runs` runs, and may do so."""

    what: str
    worse: int
    better: int
    runs: int

    @property
    def by_chance(self) -> float:
        """How likely it is that head is worse so much more often than better."""
        return by_chance(self.worse, self.better)

    @property
    def is_open(self) -> bool:
        """Whether more fresh runs may show that this is no chance."""
        return self.by_chance > AGAIN and self.worse + self.better < OPEN_MAX


def counted(comparison: Comparison) -> list[Counted]:
    """All runs of the search that both sides took to the end."""
    return [
        Counted(name, number, pair)
        for name in comparison.names
        for number, pair in enumerate(pairs(comparison.on_base[name], comparison.on_head[name]))
        if pair.comparable
    ]


def differences(found: Differences) -> list[Difference]:
    """How often each quantity differs."""
    return [difference(found, what) for what in COUNTED if found.worse[what] or found.better[what]]


def difference(found: Differences, what: str) -> Difference:
    """How often one quantity differs."""
    return Difference(what, found.worse[what], found.better[what], found.runs)


def suspected(found: Differences) -> list[Difference]:
    """The quantities that cost more in these runs."""
    return [each for each in differences(found) if each.by_chance <= LIKELY]


def costs(comparison: Comparison, go_on: Callable[[], bool]) -> Weighed:
    """What costs more, in the search and again in fresh runs. What is rare needs many of these, so
    they come for as long as something is open and `go_on` says so. Raises Ended."""
    runs = counted(comparison)
    suspects = suspected(comparison.differences)
    fresh = Differences()
    again = {each.what: Difference(each.what, 0, 0, 0) for each in suspects}
    kinds = _kinds(comparison, runs, [each.what for each in suspects])
    for part in count():
        if not any(each.is_open for each in again.values()) or not go_on():
            break
        fresh.add(_fresh(comparison, kinds, part))
        again = {what: difference(fresh, what) for what in again}
    weighed = Weighed([], [])
    for suspect in suspects:
        found = again[suspect.what]
        if found.by_chance <= AGAIN:
            weighed.costs.append(_cost(suspect, runs))
        else:
            weighed.unconfirmed.append(
                f"{suspect.what}: head is worse in {suspect.worse} of {suspect.runs} runs and "
                f"better in {suspect.better}; of {found.runs} fresh runs it is worse in "
                f"{found.worse} and better in {found.better}"
            )
    return weighed


def _cost(found: Difference, runs: Sequence[Counted]) -> Cost:
    unequal = [each for each in runs if each.pair.worse(found.what)]
    base = sum(each.pair.base.counted(found.what) for each in unequal)
    head = sum(each.pair.head.counted(found.what) for each in unequal)
    worse = [each for each in unequal if each.pair.worse(found.what) > 0]
    smallest = min(worse, key=lambda each: len(each.pair.head.marks))
    return Cost(*found, base, head, smallest)


def _kinds(
    comparison: Comparison, runs: Sequence[Counted], suspects: Sequence[str]
) -> list[tuple[Workload, str]]:
    """The workloads in which head was worse, with the kinds of cache groups of a plan for a
    connector: the most frequent ones first."""
    often = Counter(
        (each.workload, _groups(comparison, each))
        for each in runs
        if any(each.pair.worse(what) > 0 for what in suspects)
    )
    return [(comparison.workloads[name], kinds) for (name, kinds), _ in often.most_common(FRESH)]


def _groups(comparison: Comparison, run: Counted) -> str:
    kinds = comparison.on_head[run.workload].kinds
    return kinds[run.number] if kinds else ""


def _fresh(comparison: Comparison, kinds: Sequence[tuple[Workload, str]], part: int) -> list[Pair]:
    """Fresh runs of these kinds. Each `part` has others."""
    these = [
        fresh
        for number, (workload, groups) in enumerate(kinds)
        for fresh in _like(workload, groups, comparison.seed, part * FRESH + number)
    ]
    return [pair for taken in comparison.pairs_of(these).values() for pair in taken]


def _like(workload: Workload, groups: str, seed: int, number: int) -> Iterator[Workload]:
    """Another workload of the same kind, with other runs."""
    name, apart = f"fresh runs {number + 1}", APART + number
    if isinstance(workload, Follow | Episodes):
        yield replace(workloads.like(workload, seed, apart), name=name)
    elif isinstance(workload, Plays):
        yield replace(workload, name=name, seed=workload.seed + apart, plans=None, kinds=groups)
    elif isinstance(workload, Starts | Loops):
        yield replace(workload, name=name, seed=workload.seed + apart)
