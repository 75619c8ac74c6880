"""The excuses that head needs and base does not, in the runs that both took, and the checks that
head breaks there and base does not.

What vLLM does today without a reason (`release`), and what base never did in this search, is tried
as a break is (`trial`). Where base does it in other runs, or a good scheduler may do it (`choice`),
chance is excluded at the end of the search: head must need the excuse in more runs than base, and
again in fresh runs. So must it break a check that base breaks in other runs, be it by a finding
that is known. Where a check has many sets of excuses, none may come often enough: what stands for
all of a kind is weighed where none of them is likely.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from kvproof.gate.difference.compare import on_head_alone
from kvproof.gate.difference.judged import Break, shape_in_words
from kvproof.gate.difference.record import Need, Pair
from kvproof.gate.difference.result import Result
from kvproof.gate.search.fresh import CERTAIN, FRESH_MAX, LIKELY, FreshRuns, Runs, TakesRuns

TRIES = 3
"""The number of runs in which one need is looked at again."""

WEIGHED_MAX = 6
"""The number of needs that have fresh runs: these take a while."""


def in_words(need: Need) -> str:
    """A need in one line."""
    excused = "; ".join(each.says for each in need.excuses)
    of = f", {need.death}" if need.death else shape_in_words(need.shape)
    return need.check + (f", excused: {excused}" if excused else of)


class Needs:
    """The needs of a comparison."""

    def __init__(self, comparison: TakesRuns) -> None:
        self._comparison = comparison
        self._of_base: set[Need] = set()
        self._where: dict[Need, list[tuple[str, int]]] = {}
        self._tried: Counter[Need] = Counter()
        self._told: set[Need] = set()
        self._left: set[Need] = set()
        self._weighed = 0
        self.unweighed: list[Need] = []
        self.not_more: list[Need] = []

    @property
    def not_again(self) -> list[Need]:
        """What head alone needed without a reason, and not when its runs were taken again."""
        return [
            need
            for need, tried in self._tried.items()
            if need not in self._told
            and not need.is_choice
            and (tried >= TRIES or not self._where[need])
        ]

    def likely(self, level: float = LIKELY) -> list[Need]:
        """What head has needed more often than chance explains at this level, and is not told yet.
        What stands for several needs is left out where one of these is likely, or is told."""
        counted = self._comparison.counted
        found = [need for need in self._where if counted.chance(need) <= level]
        known = {need.like for need in (*found, *self._told) if need.like != need}
        return [need for need in found if need not in self._told and need not in known]

    def add(self, name: str, runs: Iterable[Pair]) -> None:
        """Count what the runs of a workload need."""
        for number, pair in enumerate(runs):
            self._of_base |= {each.need for each in pair.base.needed}
            new = pair.new_on_head
            for need in {**dict.fromkeys(new), **{each.like: None for each in new if each.excuses}}:
                self._where.setdefault(need, []).append((name, number))

    def confirm(self) -> Iterator[tuple[str, Break, Result]]:
        """What head needs without a reason, and base never did in this search: the workload, the
        break, and the result of head that shows it again. Raises Ended."""
        for need in [*self._where]:
            weighed = not need.excuses or need.is_choice or need == need.like or need in self._left
            if not (weighed or need in self._told or self.base_does(need)):
                yield from self._again(need)

    def leave(self, need: Need) -> None:
        """Leave a need that was confirmed, and is not told, to be weighed at the end."""
        self._told.discard(need)
        self._left.add(need)

    def weigh(
        self,
        go_on: Callable[[], bool],
        of_choices: Callable[[], bool] | None = None,
        level: float = LIKELY,
    ) -> Iterator[tuple[str, Break, Result]]:
        """What head needs more often, in the search at this level and again in fresh runs.
        `of_choices` says whether to go on with what is a choice, which comes last. Those for which
        there was no time, or which were too many, are left in `unweighed`, and those that come
        again, and not significantly more often in fresh runs, in `not_more`. Raises Ended."""
        likely, counted = self.likely(level), self._comparison.counted
        likely.sort(key=lambda n: (len(n.excuses) > 0, n.is_choice, counted.chance(n)))
        self.unweighed = likely
        while self.unweighed and self._weighed < WEIGHED_MAX:
            choice = self.unweighed[0].is_choice
            if not (of_choices or go_on if choice else go_on)():
                return
            need, *rest = self.unweighed
            for shown in self._again(need):
                self._weighed += 1
                if self._more_often(shown[1], need):
                    yield shown
                else:
                    self.not_more.append(need)
            self.unweighed = rest

    def base_does(self, need: Need) -> bool:
        """Whether base needs all of these excuses for one break in some run."""
        return any(each.covers(need) for each in self._of_base)

    def _again(self, need: Need) -> Iterator[tuple[str, Break, Result]]:
        """A run in which head shows a need again, and base does not; none after some tries."""
        where, both = self._where[need], self._comparison
        while where and self._tried[need] < TRIES:
            name, number = where.pop(0)
            run = both.run(name, number)
            if run is None:
                continue
            self._tried[need] += 1
            base, head = both.shown(run)
            shown = (e for e in (*head.breaks, *head.excused) if need in (e.need, e.need.like))
            found = next((e for e in shown if on_head_alone(e.key, base, head)), None)
            if found is not None:
                self._told |= {need, found.need}
                yield name, found, head
                return

    def _more_often(self, found: Break, need: Need) -> bool:
        """Whether head alone has a need in significantly more fresh runs than base alone."""
        fresh = FreshRuns(self._comparison, [found.run(found.signature.check)])
        fresh.take_while(lambda: fresh.counted.taken < FRESH_MAX)
        counted = Runs()
        of_base = {each.need for each in self._comparison.breaks_of_base(found)}
        counted.add(fresh.pairs, of_base)
        return counted.chance(need) <= CERTAIN
