"""What costs more on head than on base: a short list of quantities, counted in every run that both
took to the end.

A quantity costs more where head counts worse than base in significantly more runs than it counts
better, and does so again in fresh runs: a sign test. Some runs may count better: after the first
difference the sides go ways of their own, and what is not hit early may be hit later.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from kvproof.gate.difference.record import COUNTED, COUNTER, Pair
from kvproof.gate.difference.workload import Plays, Workload
from kvproof.gate.search.comparison import Comparison
from kvproof.gate.search.fresh import FreshRuns, Runs, by_chance

LIKELY = 0.05 / (len(COUNTED) - len(COUNTER))
"""How likely chance may be in the runs of the search. One of so many quantities is worse by chance
in one of 20 searches: with eight runs that are worse, none may be better."""

AGAIN = 0.04
"""How likely chance may be in the fresh runs: five that are worse, and none that is better. They
are counted after each part, so chance has several tries; `LIKELY`, which has one, bounds it."""

OPEN_MAX = 60
"""The number of fresh runs that differ, in one direction or the other, after which a quantity is
not looked at any more."""

KINDS_MAX = 8
"""The number of kinds of runs of which fresh ones are taken."""


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
    found = (Counted(*each) for each in comparison.all_pairs())
    return [each for each in found if each.pair.comparable]


def differences(found: Runs) -> list[Difference]:
    """How often each quantity differs."""
    return [difference(found, what) for what in COUNTED if found.more[what] or found.less[what]]


def difference(found: Runs, what: str) -> Difference:
    """How often one quantity differs."""
    return Difference(what, found.more[what], found.less[what], found.whole)


def suspected(found: Runs) -> list[Difference]:
    """The quantities that cost more in these runs."""
    return [each for each in differences(found) if each.by_chance <= LIKELY]


def costs(comparison: Comparison, go_on: Callable[[], bool]) -> Weighed:
    """What costs more, in the search and again in fresh runs. What is rare needs many of these, so
    they come for as long as something is open and `go_on` says so. Raises Ended."""
    runs, suspects = counted(comparison), suspected(comparison.counted)
    names = [each.what for each in suspects]
    fresh = FreshRuns(comparison, _kinds(comparison, runs, names))
    again = fresh.take_while(
        lambda: any(difference(fresh.counted, each).is_open for each in names) and go_on()
    )
    weighed = Weighed([], [])
    for suspect in suspects:
        once_more = difference(again, suspect.what)
        if once_more.by_chance <= AGAIN:
            weighed.costs.append(_cost(suspect, runs))
        else:
            weighed.unconfirmed.append(
                f"{suspect.what}: head is worse in {suspect.worse} of {suspect.runs} runs and "
                f"better in {suspect.better}; of {once_more.runs} fresh runs it is worse in "
                f"{once_more.worse} and better in {once_more.better}"
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
) -> list[Workload]:
    """The kinds of runs in which head was worse, the most frequent ones first."""
    often = Counter(
        (each.workload, _groups(comparison, each))
        for each in runs
        if any(each.pair.worse(what) > 0 for what in suspects)
    )
    found = ((comparison.workloads[name], groups) for (name, groups), _ in often.most_common())
    return [
        replace(workload, kinds=groups) if isinstance(workload, Plays) else workload
        for workload, groups in islice(found, KINDS_MAX)
    ]


def _groups(comparison: Comparison, run: Counted) -> str:
    """The kinds of cache groups of a plan for a connector."""
    kinds = comparison.on_head[run.workload].kinds
    return kinds[run.number] if kinds else ""
