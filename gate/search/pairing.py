"""Random runs that both sides take: each side draws a half of them, and the other takes the same,
so that the runs of base and head can be compared."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from kvproof.gate.difference.result import Result, joined
from kvproof.gate.difference.workload import Again, Episodes, Workload
from kvproof.gate.search.side import Side

APART = 700_000
"""The seeds of the halves of one workload are so far apart."""

Results = Mapping[str, Result]
"""The results of workloads by name."""


def own(number: int, side: Side, workloads: Sequence[Workload]) -> Results:
    """What one side (0 is base, 1 is head) shows of these workloads; of random episodes it draws
    its half. Raises Ended."""
    found = {}
    for each in workloads:
        drawn: Workload = each
        if isinstance(each, Episodes):
            second = each.episodes // 2
            if number and not second:
                continue
            episodes = second if number else each.episodes - second
            drawn = replace(each, episodes=episodes, seed=each.seed + APART * number)
        [found[each.name]] = side.drive([drawn], reach=True)
    return found


def of_the_other(side: Side, workloads: Sequence[Workload], drawn: Results) -> Results:
    """What a side shows of the episodes that the other one has `drawn`. Raises Ended."""
    found = {}
    for each in workloads:
        runs = drawn[each.name].taken if each.name in drawn else ()
        if isinstance(each, Episodes) and runs:
            [found[each.name]] = side.drive([Again(each.name, each.cluster, runs)], reach=True)
    return found


def together(workload: Workload, *parts: Results) -> Result:
    """The result of a workload on one side: of what base has drawn, and then of the rest."""
    found = [each[workload.name] for each in parts if workload.name in each]
    return found[0] if len(found) == 1 else joined(workload.name, found)
