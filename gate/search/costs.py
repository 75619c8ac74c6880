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
from kvproof.gate.search.fresh import FreshRuns, Runs

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


def suspected(found: Runs) -> list[str]:
    """The quantities that cost more in these runs."""
    return [what for what in COUNTED if found.chance(what) <= LIKELY]


def costs(comparison: Comparison, go_on: Callable[[], bool]) -> Weighed:
    """What costs more, in the search and again in fresh runs. What is rare needs many of these, so
    they come for as long as something is open and `go_on` says so. Raises Ended."""
    runs = [Counted(*each) for each in comparison.all_pairs() if each[2].comparable]
    suspects, weighed = suspected(comparison.counted), Weighed([], [])
    fresh = FreshRuns(comparison, _kinds(comparison, runs, suspects))
    again = fresh.take_while(lambda: any(_is_open(fresh.counted, e) for e in suspects) and go_on())
    for what in suspects:
        if again.chance(what) <= AGAIN:
            weighed.costs.append(_cost(what, comparison.counted, runs))
        else:
            weighed.unconfirmed.append(
                f"{what}: head is {_often(comparison.counted, what)}; fresh: {_often(again, what)}"
            )
    return weighed


def _is_open(fresh: Runs, what: str) -> bool:
    """Whether more fresh runs may show that this is no chance."""
    return fresh.chance(what) > AGAIN and fresh.more[what] + fresh.less[what] < OPEN_MAX


def _often(found: Runs, what: str) -> str:
    return f"worse in {found.more[what]} of {found.whole} runs and better in {found.less[what]}"


def _cost(what: str, found: Runs, runs: Sequence[Counted]) -> Cost:
    unequal = [each for each in runs if each.pair.worse(what)]
    base = sum(each.pair.base.counted(what) for each in unequal)
    head = sum(each.pair.head.counted(what) for each in unequal)
    worse = [each for each in unequal if each.pair.worse(what) > 0]
    smallest = min(worse, key=lambda each: len(each.pair.head.marks))
    return Cost(what, found.more[what], found.less[what], found.whole, base, head, smallest)


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
