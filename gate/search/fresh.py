"""Fresh runs: random runs of the kinds in which the search has seen something, which both sides
take. What chance made in the search hardly comes again in these: a sign test says so. A break that
is tried, a need that is weighed and a quantity that costs more have the same fresh runs.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from math import comb
from typing import Protocol

from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.record import COUNTED, Need, Pair
from kvproof.gate.difference.result import Result, pairs
from kvproof.gate.difference.workload import Fixed, Workload
from kvproof.gate.search.workloads import near

APART = 800_000
"""The seeds of fresh runs are so far from those of the search."""

AT_ONCE = 8
"""The number of fresh runs of one kind between two looks at what they show."""

FRESH_MAX = 48
"""The number of fresh runs in which a break is tried, and a need weighed."""

LIKELY, CERTAIN = 0.05, 0.01
"""How likely chance may be in the runs of the search, and in the fresh runs."""

EARLY = 16
"""By so much less likely chance must be before the search has ended: it has a try after each part
of the search."""


def by_chance(more: int, less: int) -> float:
    """How likely it is that of so many runs that differ at least `more` differ in one direction, if
    both directions are equally likely: a sign test."""
    runs = more + less
    return float(sum(comb(runs, number) for number in range(more, runs + 1)) / 2**runs)


class Runs:
    """In how many runs head alone has a need or counts worse in a quantity (`more`), and in how
    many base alone does (`less`). Each need is counted with those like it, too: breaks of one check
    in whatever shape, and what needs excuses of one kind. `taken` is the number of runs; both sides
    took so many of them to the end (`whole`), and part in so many, however they end (`apart`)."""

    def __init__(self) -> None:
        self.more: Counter[Need | str] = Counter()
        self.less: Counter[Need | str] = Counter()
        self.taken = self.whole = self.apart = 0

    def add(self, runs: Iterable[Pair], of_base: Collection[Need] = ()) -> None:
        """Count runs, without the breaks of head that may follow from one `of_base`. The quantities
        of those that a side did not take to the end say nothing."""
        for pair in runs:
            self.taken += 1
            self.apart += pair.parts_at is not None
            new = (each for each in pair.new_on_head if not pair.follows(each, of_base))
            self.more.update(_with_like(new))
            self.less.update(_with_like(Pair(pair.head, pair.base).new_on_head))
            if pair.comparable:
                self.whole += 1
                signs = {what: pair.worse(what) for what in COUNTED}
                self.more.update(what for what, sign in signs.items() if sign > 0)
                self.less.update(what for what, sign in signs.items() if sign < 0)

    def chance(self, what: Need | str) -> float:
        """How likely chance alone shows this so much more often on head than on base. Of a break
        also in any shape: head may have changed how a defect of base looks. But one death is not
        another."""
        found = {what}
        if isinstance(what, Need) and not (what.excuses or what.death):
            found.add(what.like)
        return max(by_chance(self.more[each], self.less[each]) for each in found)


def _with_like(needs: Iterable[Need]) -> set[Need]:
    """These needs, and for each what is like it."""
    found = {*needs}
    return found | {each.like for each in found}


class TakesRuns(Protocol):
    """What takes runs on base and on head: the comparison. `counted` are the runs of its search,
    and `may_try` says whether there is time for more runs."""

    seed: int
    counted: Runs
    may_try: Callable[[], bool]

    def sides(self, workload: Workload) -> tuple[Result, Result]:
        """What base and head show of a workload."""

    def breaks_of_base(self, found: Break) -> list[Break]:
        """What base breaks in runs of the kind in which head shows a break."""

    def run(self, name: str, number: int) -> Fixed | None:
        """One run of a workload of the search, by itself."""

    def shown(self, run: Fixed) -> tuple[Result, Result]:
        """What base and head show of a run, with the breaks that have excuses."""


class FreshRuns:
    """The fresh runs of some kinds, `number` of each at once. A kind is that of a workload that has
    shown something. `pairs` are the runs so far, in so many `parts`, and `counted` what they show.
    Who has had some parts of a kind has the further ones from the part `first` on."""

    def __init__(
        self, both: TakesRuns, kinds: Sequence[Workload], number: int = AT_ONCE, first: int = 0
    ) -> None:
        self.counted = Runs()
        self.pairs: list[Pair] = []
        self.parts = 0
        self._both, self._kinds, self._number, self._first = both, kinds, number, first

    def take(self) -> list[tuple[Result, Result]]:
        """What both sides show of the next part, a result for each kind. Raises Ended."""
        part, seed = self._first + self.parts, self._both.seed
        self.parts += 1
        found = []
        for kind in self._kinds:
            name = f"runs like {kind.name}, part {part + 1}"
            found.append(self._both.sides(near(kind, name, seed, APART + part, self._number)))
            taken = pairs(*found[-1])
            self.pairs += taken
            self.counted.add(taken)
        return found

    def take_while(self, go_on: Callable[[], bool]) -> Runs:
        """Take parts as long as `go_on` says so, and both sides can drive some. Returns all runs so
        far. Raises Ended."""
        before = -1
        while self.counted.taken > before and go_on():
            before = self.counted.taken
            self.take()
        return self.counted
