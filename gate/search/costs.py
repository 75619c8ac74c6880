"""What costs more on head than on base: a short list of quantities, counted in every run that both
took to the end.

A quantity costs more where head counts worse than base in at least `WORSE_MIN` runs and better in
none, and does so again in fresh runs. By chance that hardly happens: a sign test.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from msgspec.structs import replace

from kvproof.gate.difference.record import COUNTED, Differences, Pair
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
"""The number of workloads with fresh runs that are driven before these are counted again."""

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


def differences(found: Differences) -> list[Difference]:
    """How often each quantity differs."""
    return [
        Difference(what, found.worse[what], found.better[what], found.runs)
        for what in COUNTED
        if found.worse[what] or found.better[what]
    ]


def suspected(found: Differences) -> list[Difference]:
    """The quantities that cost more in these runs."""
    return [each for each in differences(found) if each.worse >= WORSE_MIN and not each.better]


def costs(comparison: Comparison, go_on: Callable[[], bool]) -> Weighed:
    """What costs more, in the search and again in fresh runs. What is rare needs many of these, so
    they come for as long as something is open and `go_on` says so. Raises Ended."""
    runs = counted(comparison)
    suspects = suspected(comparison.differences)
    fresh = Differences()
    again: dict[str, Difference] = {}
    kinds = _kinds(comparison, runs, [each.what for each in suspects])
    for part in count():
        still_open = [
            each
            for each in suspects
            if each.what not in again
            or not (again[each.what].better or again[each.what].worse >= AGAIN_MIN)
        ]
        if not still_open or not go_on():
            break
        fresh.add(_fresh(comparison, kinds, part))
        none = {each.what: Difference(each.what, 0, 0, fresh.runs) for each in suspects}
        again = none | {each.what: each for each in differences(fresh)}
    weighed = Weighed([], [])
    for suspect in suspects:
        found = again.get(suspect.what, Difference(suspect.what, 0, 0, 0))
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
