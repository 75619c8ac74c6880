"""How well the runs know what is near the change: how much the next step is expected to show that
is new.

A step is near where it executes the change of a function. What it shows are its abstract steps,
each with every feature of its cluster. By Good and Turing, the number of things that the next step
near the change of a function shows, and that no step has shown before, is about the number of
things that were seen exactly once, divided by the number of steps. One is added to the first
number: else a function with few steps, all alike, would count as known. Traces are not counted,
since they are no random sample. Where clusters execute the change of a function, their steps count,
else those of connectors or of engines, whichever are most: each has abstract steps of its own.
"""

from collections import Counter
from collections.abc import Iterable

from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Episodes, Follow, Workload
from kvproof.model.config.features.registry import used_by

UNSEEN_MAX = 0.01
"""The search may end where no more is expected (docs/explanation/judging.md says why)."""


class _Steps:
    """Steps near the change of one function: how many, and how many showed each thing."""

    def __init__(self) -> None:
        self.count = 0
        self.things: Counter[tuple[str, str]] = Counter()

    @property
    def unseen(self) -> float:
        """What the next one is expected to show that is new, at most 1."""
        once = sum(times == 1 for times in self.things.values())
        return min((once + 1) / self.count, 1.0) if self.count else 1.0


class ShownNear:
    """What the workloads of one side have shown so far, by changed function and kind of
    workloads."""

    def __init__(self) -> None:
        self._steps: dict[str, dict[type[Workload], _Steps]] = {}

    def add(self, workload: Workload, result: Result) -> None:
        """Add what a watched workload has shown. Only clusters have features."""
        kind = Episodes if isinstance(workload, Follow) else type(workload)
        features = used_by(workload.cluster) if isinstance(workload, Episodes) else {""}
        for key, near in result.near.items():
            steps = self._steps.setdefault(key, {}).setdefault(kind, _Steps())
            if isinstance(workload, Follow):
                continue
            steps.count += near.steps
            for name, times in near.kinds.items():
                steps.things.update({(feature, name): times for feature in features})

    def of(self, function: str) -> float | None:
        """What the next step near the change of this function is expected to show that is new;
        None where no run executes it."""
        by_kind = self._steps.get(function)
        if by_kind is None:
            return None
        return by_kind.get(Episodes, max(by_kind.values(), key=lambda steps: steps.count)).unseen


def unseen(functions: Iterable[str], head: ShownNear, base: ShownNear) -> float:
    """The largest of these functions: 1 where one has no step, 0 where there is no function. What
    head does not execute counts on base."""
    found = ((head.of(each), base.of(each)) for each in functions)
    return max((next((n for n in both if n is not None), 1.0) for both in found), default=0.0)
