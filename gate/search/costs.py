"""What costs more on head than on base: a short list of quantities, counted in every run that both
took to the end.

A quantity costs more where head counts worse than base in at least `WORSE_MIN` runs and better in
none, and does so again in fresh runs. By chance that hardly happens: a sign test.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from kvproof.gate.difference.record import COUNTED, Pair
from kvproof.gate.difference.result import pairs
from kvproof.gate.difference.workload import Episodes, Follow, Loops, Plays, Starts, Workload
from kvproof.gate.search import workloads
from kvproof.gate.search.comparison import Comparison

WORSE_MIN = 8
"""The number of runs in which head must count worse. By chance, with none better, that happens once
in 256 times to one quantity: a sign test at 0.05, divided by the 12 of `COUNTED`."""

AGAIN_MIN = 5
"""The number of fresh runs in which it must do so again."""

FRESH = 8
"""The number of workloads with fresh runs."""

APART = 900_000
"""The seeds of the fresh runs are so far from those of the search."""


class Counted(NamedTuple):
    """A run that both sides took to the end: the name of its workload, and its number there."""

    workload: str
    number: int
    pair: Pair


class Cost(NamedTuple):
    """A quantity in which head is worse in `worse` of `runs` runs and better in none. `base` and
    `head` are its sums over the worse runs, and `smallest` is the shortest of these."""

    what: str
    worse: int
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


def counted(comparison: Comparison) -> list[Counted]:
    """All runs of the search that both sides took to the end."""
    return [
        Counted(name, number, pair)
        for name in comparison.names
        for number, pair in enumerate(pairs(comparison.on_base[name], comparison.on_head[name]))
        if pair.comparable
    ]


def differences(runs: Sequence[Counted]) -> list[Difference]:
    """How often each quantity differs."""
    found = []
    for what in COUNTED:
        signs = [each.pair.worse(what) for each in runs]
        worse, better = sum(sign > 0 for sign in signs), sum(sign < 0 for sign in signs)
        if worse or better:
            found.append(Difference(what, worse, better, len(runs)))
    return found


def costs(comparison: Comparison) -> Weighed:
    """What costs more, in the search and again in fresh runs. Raises Ended."""
    runs = counted(comparison)
    suspects = [each for each in differences(runs) if each.worse >= WORSE_MIN and not each.better]
    if not suspects:
        return Weighed([], [])
    fresh = _fresh(comparison, runs, [each.what for each in suspects])
    again = {each.what: each for each in differences(fresh)}
    weighed = Weighed([], [])
    for suspect in suspects:
        found = again.get(suspect.what, Difference(suspect.what, 0, 0, len(fresh)))
        if found.worse >= AGAIN_MIN and not found.better:
            weighed.costs.append(_cost(suspect.what, runs))
        else:
            weighed.unconfirmed.append(
                f"{suspect.what}: head is worse in {suspect.worse} of {suspect.runs} runs and "
                f"better in none; of {found.runs} fresh runs it is worse in {found.worse} and "
                f"better in {found.better}"
            )
    return weighed


def _cost(what: str, runs: Sequence[Counted]) -> Cost:
    worse = [each for each in runs if each.pair.worse(what) > 0]
    base = sum(each.pair.base.counts.get(what, 0) for each in worse)
    head = sum(each.pair.head.counts.get(what, 0) for each in worse)
    smallest = min(worse, key=lambda each: len(each.pair.head.marks))
    return Cost(what, len(worse), len(runs), base, head, smallest)


def _fresh(
    comparison: Comparison, runs: Sequence[Counted], suspects: Sequence[str]
) -> list[Counted]:
    """Fresh runs of the kinds in which head was worse, the most frequent kinds first."""
    often = Counter(
        each.workload for each in runs if any(each.pair.worse(what) > 0 for what in suspects)
    )
    these = [
        fresh
        for number, (name, _) in enumerate(often.most_common(FRESH))
        for fresh in _like(comparison.workloads[name], comparison.seed, number)
    ]
    both = comparison.pairs_of(these)
    return [
        Counted(name, number, pair)
        for name, found in both.items()
        for number, pair in enumerate(found)
        if pair.comparable
    ]


def _like(workload: Workload, seed: int, number: int) -> Iterator[Workload]:
    """Another workload of the same kind, with other runs."""
    name = f"fresh runs {number + 1}"
    if isinstance(workload, Follow | Episodes):
        yield replace(workloads.like(workload, seed, APART + number), name=name)
    elif isinstance(workload, Plays):
        yield replace(workload, name=name, seed=workload.seed + APART, plans=None)
    elif isinstance(workload, Starts | Loops):
        yield replace(workload, name=name, seed=workload.seed + APART)
