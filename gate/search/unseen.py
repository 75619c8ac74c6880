"""How well the runs know what is near the change: the chance that the next step shows something
new.

A step is near where it executes the change of a function. By Good and Turing, the chance that the
next step near the change of a function has an abstract step that none had before is about the
number of abstract steps that were seen exactly once, divided by the number of steps. One is added
to the first number: else a function with few steps, all alike, would count as known. Where the
changed statements of a function name features, the steps of clusters with each of them are taken by
themselves, too. Traces are not counted, since they are no random sample. Where clusters execute the
change of a function, their steps count, else those of connectors, of starts or of loops, whichever
are most: each has abstract steps of its own.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from kvproof.gate.difference.compare import Results
from kvproof.gate.difference.result import Near
from kvproof.gate.difference.workload import Episodes, Follow, Workload
from kvproof.gate.search.named_features import named
from kvproof.gate.source.changes import ChangedFunction
from kvproof.model.config.features.registry import used_by

UNSEEN_MAX = 0.01
"""The search may end where the chance is not larger (docs/explanation/judging.md says why)."""

ALL = ""
"""Instead of a feature: all steps."""


class _Steps:
    """Steps near the change of one function: how many, and how many with each abstract step."""

    def __init__(self) -> None:
        self.count = 0
        self.kinds: Counter[str] = Counter()

    def add(self, near: Near) -> None:
        """Add the steps of a workload."""
        self.count += near.steps
        self.kinds.update(near.kinds)

    @property
    def chance(self) -> float:
        """The chance that the next one shows something new."""
        once = sum(times == 1 for times in self.kinds.values())
        return min((once + 1) / self.count, 1.0) if self.count else 1.0


ByKind: TypeAlias = dict[str, dict[str, _Steps]]
"""By kind of workload, and in this by feature."""


def unseen(
    functions: Sequence[ChangedFunction],
    workloads: Mapping[str, Workload],
    sides: Sequence[Results],
) -> float:
    """The largest chance of these functions: 1 where one has no step, 0 where there is no function.
    The first side that executes the change of a function counts."""
    features = {each.key: named([each]) for each in functions}
    on_sides = [_steps(features, workloads, results) for results in sides]
    return max((_chance(key, on_sides) for key in features), default=0.0)


def _chance(key: str, on_sides: Iterable[Mapping[str, ByKind]]) -> float:
    by_kind = next((side[key] for side in on_sides if key in side), {})
    most = max(by_kind.values(), key=lambda steps: steps[ALL].count, default={ALL: _Steps()})
    most = by_kind.get(Episodes.__name__, most)
    return max(each.chance for each in most.values())


def _steps(
    features: Mapping[str, frozenset[str]], workloads: Mapping[str, Workload], results: Results
) -> dict[str, ByKind]:
    """The random steps near the change of each function. Only clusters have features."""
    found: dict[str, ByKind] = {}
    for name, result in results.items():
        workload = workloads[name]
        of_cluster = isinstance(workload, Episodes | Follow)
        used = used_by(workload.cluster) if isinstance(workload, Episodes) else set[str]()
        kind = Episodes if of_cluster else type(workload)
        for key, near in result.near.items():
            wanted = {ALL, *(features.get(key, ()) if of_cluster else ())}
            by_kind = found.setdefault(key, {})
            steps = by_kind.setdefault(kind.__name__, {each: _Steps() for each in wanted})
            for each in () if isinstance(workload, Follow) else wanted & {ALL, *used}:
                steps[each].add(near)
    return found
