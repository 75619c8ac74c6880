"""Whether head alone breaks something, or base would too: both sides take many runs like the one in
which head alone did.

A defect that both have and show in one of 50 runs is shown by head first in every second search.
So one run says little, also if it is taken twice: the sides differ in it for any reason.

First come fresh runs, random ones of the same kind, which nobody has chosen: head is told where a
sign test says that it alone breaks this more often than base alone. They end early where the rates
of both are such that all of them would not tell. Then, unless base has broken it, come variants of
the run, with a few events more, less, or at another place. Head is likelier to break something
there, as the run was chosen by what head does: so they tell of head only while base breaks it in
none of them. For the same reason a variant of the run of a cluster begins with other requests, as
what breaks in certain states alone, whatever head does, must not be met by head again and again.

What base breaks in other runs leads to further breaks. So a run in which head alone breaks such a
check first says nothing of another one that it breaks there.
"""

from collections.abc import Callable, Iterable, Sequence

from kvproof.gate.difference.compare import of_one_shape, the_same
from kvproof.gate.difference.judged import Break
from kvproof.gate.difference.record import Need, Pair
from kvproof.gate.difference.result import Result, pairs
from kvproof.gate.difference.workload import Workload
from kvproof.gate.search.fresh import (
    AT_ONCE,
    CERTAIN,
    FRESH_MAX,
    FreshRuns,
    Runs,
    TakesRuns,
    by_chance,
)
from kvproof.gate.search.needs import in_words
from kvproof.gate.search.variants import variants

FRESH_MIN = 16
"""The least number of fresh runs that both sides take, unless head is told. They are taken whatever
the time is."""

TRIES_IN_ALL = 12
"""The number of all workloads in which one break is tried."""

OF_BOTH = CERTAIN / TRIES_IN_ALL
"""How likely chance may be where base breaks it too: each workload has a trial, in which chance may
be for head once more."""


class Trial:
    """What both sides show of runs like that of a break, in so many `parts` as trials were joined.
    `counted` has in how many one side alone breaks it, and `fresh` in how many of those that nobody
    has chosen; neither has a break of head that may follow from what is `of_base`. In so many
    `unasked` ones head breaks it where base ends before. `on_base` says that base does, and
    `beside` that base breaks this check in another shape. It is `explained` if base says in each
    run that shows it why head does. `reason` says why base could not be asked, and `ends` that head
    could not be driven any further."""

    def __init__(self, found: Break, of_base: Callable[[Break], Sequence[Break]]) -> None:
        self.found, self.need, self._of_base = found, found.need, of_base
        self._fresh: list[Pair] = []
        self._others: list[Pair] = []
        self.parts, self.unasked = 1, 0
        self.on_base = of_one_shape(found.key, (each.key for each in of_base(found)))
        self.beside = self.explained = self.ends = False
        self.reason = ""
        self._known: dict[bool, Runs] = {}

    def add(self, base: Result, head: Result, *, fresh: bool) -> None:
        """Add what both show of some runs."""
        self.reason = self.reason or base.reason
        self.ends = self.ends or bool(head.reason)
        taken = pairs(base, head)
        self.unasked += sum(self.need in pair.unasked for pair in taken)
        (self._fresh if fresh else self._others).extend(taken)
        self._known.clear()
        key = self.found.key
        if self.need.excuses:
            needed = (each.need for record in base.records for each in record.needed)
            self.on_base |= any(each.covers(self.need) for each in needed)
        else:
            self.on_base |= of_one_shape(key, base.keys)
            self.beside |= the_same(key, base)

    def join(self, other: "Trial") -> None:
        """Add what another trial of the same break has shown."""
        self.parts += other.parts
        self.unasked += other.unasked
        self._fresh += other._fresh
        self._others += other._others
        self._known.clear()
        self.on_base |= other.on_base
        self.beside |= other.beside
        self.explained &= other.explained
        self.ends |= other.ends
        self.reason = self.reason or other.reason

    def add_search(self, taken: Iterable[Pair]) -> None:
        """Add the runs of the search."""
        self._others += taken
        self._known.clear()

    @property
    def fresh(self) -> Runs:
        """What the fresh runs show."""
        return self._runs(fresh=True)

    @property
    def counted(self) -> Runs:
        """What all runs show."""
        return self._runs(fresh=False)

    def _runs(self, *, fresh: bool) -> Runs:
        """What the fresh runs or all runs show, counted once after each that was added."""
        if fresh not in self._known:
            runs = self._known[fresh] = Runs()
            taken = self._fresh if fresh else [*self._fresh, *self._others]
            runs.add(taken, {each.need for each in self._of_base(self.found)})
        return self._known[fresh]

    @property
    def is_over(self) -> bool:
        """Whether a side cannot be asked."""
        return self.ends or bool(self.reason)

    @property
    def counted_as(self) -> Need:
        """What is counted: the break, or where base breaks its check in no shape, head's breaks of
        this check in any."""
        known = self.beside or self.counted.less[self.need.like]
        return self.need if known and not self.need.excuses else self.need.like

    @property
    def on_head(self) -> int:
        """The number of runs in which head alone breaks it."""
        return self.counted.more[self.counted_as]

    @property
    def is_told(self) -> bool:
        """Whether head alone breaks it in so many runs that chance is excluded."""
        return self.is_told_at(self.level)

    def is_told_at(self, level: float) -> bool:
        """Whether chance is no likelier than this level."""
        runs = self.fresh if self.on_base else self.counted
        return not self.is_over and runs.chance(self.counted_as) <= level

    @property
    def level(self) -> float:
        """How likely chance may be in what is told."""
        return OF_BOTH if self.on_base else CERTAIN

    @property
    def words(self) -> str:
        """What is known of a break that is not told."""
        ended = f", and ended before in {self.unasked} where head did" * bool(self.unasked)
        return (
            f"head alone broke {in_words(self.need)} in {self.on_head} of {self.counted.taken} "
            f"runs like the one that shows it, and base in none{ended}: too few to say whether "
            "head introduces it"
        )

    @property
    def may_be_told(self) -> bool:
        """Whether all fresh runs would tell it, at the rates of both sides in those so far."""
        alone = self.on_head, self.counted.less[self.counted_as]
        more, less = (number * FRESH_MAX // max(self.counted.taken, 1) for number in alone)
        return by_chance(more, less) <= self.level


def tried(
    both: TakesRuns,
    found: Break,
    kind: Workload,
    *,
    size: int = 0,
    brief: bool = False,
    before: int = 0,
) -> Trial:
    """Try a break of head in runs of its kind, which is that of its run, or of the workload of its
    run and of the others that its process took, `size` in all. A `brief` trial has `FRESH_MIN`
    fresh runs alone. The fresh runs of so many trials `before` are left out. Raises Ended."""
    trial, number = Trial(found, both.breaks_of_base), size or AT_ONCE
    parts = FRESH_MAX // number + bool(size)
    fresh = FreshRuns(both, [kind], number, before * parts)
    others = () if brief or size else variants(kind, both.seed, AT_ONCE)
    while fresh.parts < parts:
        hardly = others and not trial.may_be_told
        least = trial.counted.taken >= FRESH_MIN
        if least and (brief or hardly or not both.may_try()):
            break
        if trial.is_over or trial.is_told:
            break
        for of_both in fresh.take():
            trial.add(*of_both, fresh=True)
    for workload in others if not trial.is_told else ():
        if trial.is_over or trial.on_base or not both.may_try():
            break
        trial.add(*both.sides(workload), fresh=False)
    return trial
