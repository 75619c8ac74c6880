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
from kvproof.gate.difference.workload import Engine, Plays, Workload
from kvproof.gate.search.comparison import Comparison
from kvproof.gate.search.fresh import FreshRuns, Runs
from kvproof.gate.side import plans
from kvproof.reports.gate_output import GateCost

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


class Weighed(NamedTuple):
    """The quantities that cost more, and those, in words, that did so in the search alone."""

    costs: list[GateCost]
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
            weighed.costs.append(_cost(comparison, what, runs))
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


def _cost(comparison: Comparison, what: str, runs: Sequence[Counted]) -> GateCost:
    """The cost of a quantity, with the shortest run in which head is worse."""
    found = comparison.counted
    unequal = [each for each in runs if each.pair.worse(what)]
    worse = [each for each in unequal if each.pair.worse(what) > 0]
    smallest = min(worse, key=lambda each: len(each.pair.head.marks))
    return GateCost(
        what=what,
        worse=found.more[what],
        better=found.less[what],
        runs=found.whole,
        base=sum(each.pair.base.counted(what) for each in unequal),
        head=sum(each.pair.head.counted(what) for each in unequal),
        workload=f"{smallest.workload}, run {smallest.number + 1}",
        parts=_parts(comparison, smallest),
    )


def _parts(comparison: Comparison, one: Counted) -> str:
    """The event after which head differs from base in a run, in words."""
    at, run = one.pair.parts_at, comparison.run(one.workload, one.number)
    if at is None or run is None:
        return ""
    # An engine core shows each start and its loop alone.
    shown = () if isinstance(run, Engine) else plans.in_words(run)
    number = f"event {at + 1} of {len(one.pair.head.marks)}"
    return f"{number}, {shown[at]}" if at < len(shown) else number


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
