"""What costs more on head than on base: a short list of quantities, counted in every run that both
took to the end.

A quantity costs more where head counts worse than base in significantly more runs than it counts
better, and does so again in fresh runs: a sign test. Some runs may count better: after the first
difference the sides go ways of their own, and what is not hit early may be hit later. What is
hardly chance has its fresh runs while the search goes on, which may need all of the time.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from kvproof.gate.difference.record import COUNTED, Pair
from kvproof.gate.difference.workload import Engine, Plays, Workload
from kvproof.gate.search import fresh
from kvproof.gate.search.comparison import Comparison
from kvproof.gate.search.fresh import EARLY, FreshRuns, Runs
from kvproof.gate.side import plans
from kvproof.reports.gate_output import GateCost

LIKELY = 2.0**-8
"""How likely chance may be in the runs of the search: with eight runs that are worse, none may be
better. Of 13 quantities one is worse by chance in one of 20 searches."""

AGAIN = 0.04
"""How likely chance may be in the fresh runs: five that are worse, and none that is better. They
are counted after each part, so chance has several tries; `LIKELY`, which has one, bounds it."""

OPEN_MAX = 60
"""The number of fresh runs that differ, in one direction or the other, after which a quantity is
not looked at any more."""

KINDS_MAX = 8
"""The number of kinds of runs of which fresh ones are taken."""

EARLY_KINDS, EARLY_PARTS = 4, 3
"""The numbers of kinds, and of parts of their fresh runs, while the search goes on."""


class Counted(NamedTuple):
    """A run that both sides took to the end: the name of its workload, and its number there."""

    workload: str
    number: int
    pair: Pair


def suspected(found: Runs, likely: float = LIKELY) -> list[str]:
    """The quantities that cost more in these runs, if chance is at most so `likely`."""
    return [what for what in COUNTED if found.chance(what) <= likely]


class Weighing:
    """What head does more often than base, and what costs more: what the runs of a search suspect,
    and fresh runs confirm. These take time, and so does what is still unseen: what is hardly chance
    is weighed as soon as it is, and the rest at the end. `told` are the quantities that cost more,
    and `unconfirmed`, in words, those that did so in the search alone."""

    def __init__(self, comparison: Comparison) -> None:
        self.told: list[GateCost] = []
        self.unconfirmed: list[str] = []
        self._comparison = comparison
        self._tried: set[str] = set()

    @property
    def has_suspects(self) -> bool:
        """Whether something has to be seen again in fresh runs, which take time."""
        return bool(self._comparison.needs.likely() or self._suspects())

    def _suspects(self, likely: float = LIKELY) -> list[str]:
        """The quantities that cost more in the search, and are not told yet."""
        told = {each.what for each in self.told}
        return [each for each in suspected(self._comparison.counted, likely) if each not in told]

    def early(self, go_on: Callable[[], bool]) -> None:
        """Weigh what has become hardly chance, as long as `go_on` says so: each quantity is tried
        once, in few fresh runs. Raises Ended."""
        self._comparison.weigh_undecided(fresh.CERTAIN / EARLY)
        if not go_on():
            return
        self._comparison.weigh(go_on, level=fresh.LIKELY / EARLY)
        suspects = [each for each in self._suspects(LIKELY / EARLY) if each not in self._tried]
        self._tried.update(suspects)
        parts = iter(range(EARLY_PARTS))
        self._again(suspects, EARLY_KINDS, lambda: next(parts, None) is not None and go_on())

    def rest(self, go_on: Callable[[], bool], of_choices: Callable[[], bool]) -> bool:
        """Weigh the rest when the search has ended, as long as `go_on` says so, and choices only as
        long as `of_choices` does. Returns whether there was time for what costs more. Raises
        Ended."""
        self._comparison.weigh_needs(go_on, of_choices)
        if not go_on():
            return not self._suspects()
        self.weigh(go_on)
        return True

    def weigh(self, go_on: Callable[[], bool]) -> None:
        """Confirm what costs more in the search, now that it has ended. What is rare needs many
        fresh runs, so they come for as long as something is open and `go_on` says so. Raises
        Ended."""
        found = self._comparison.counted
        again = self._again(self._suspects(), KINDS_MAX, go_on)
        self.unconfirmed = [
            f"{what}: head is {_often(found, what)}; fresh: {_often(again, what)}"
            for what in self._suspects()
        ]

    def _again(self, suspects: Sequence[str], kinds: int, go_on: Callable[[], bool]) -> Runs:
        """Take fresh runs of so many kinds in which some of these cost more, and tell those that
        cost more there too. Returns the runs. Raises Ended."""
        both = self._comparison
        runs = [Counted(*each) for each in both.all_pairs() if each[2].comparable]
        kind = FreshRuns(both, _kinds(both, runs, suspects)[:kinds])
        again = kind.take_while(
            lambda: any(_is_open(kind.counted, e) for e in suspects) and go_on()
        )
        self.told += (_cost(both, e, runs) for e in suspects if again.chance(e) <= AGAIN)
        return again


def _is_open(taken: Runs, what: str) -> bool:
    """Whether more fresh runs may show that this is no chance."""
    return taken.chance(what) > AGAIN and taken.more[what] + taken.less[what] < OPEN_MAX


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
