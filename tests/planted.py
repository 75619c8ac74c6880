"""Calls made while the model has mistakes."""

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ParamSpec, TypeVar

from kvproof.invariants.check import Check
from kvproof.invariants.registry import CHECKS
from kvproof.model import planting
from kvproof.model.because import Judged
from kvproof.model.config import Cluster
from kvproof.model.faults.fault import Fault, planted
from kvproof.model.faults.registry import fault_named
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import cluster_named
from kvproof.model.step import Step
from kvproof.model.traces.trace import Trace
from kvproof.strategies.conformance.replay import record
from kvproof.strategies.explorer.explorer import explore

SHORTEST: Mapping[str, int] = json.loads(
    (Path(__file__).parent / "testdata" / "shortest_runs.json").read_text(encoding="utf-8")
)
"""The number of events of the shortest run that shows each fault. One of your own may have none."""

P = ParamSpec("P")
R = TypeVar("R")

Mistakes = Iterable[Fault] | planting.Replaced
"""Faults, or what takes the place of each named function."""


def mistaken(mistakes: Mistakes) -> AbstractContextManager[None]:
    """Have these mistakes in the model until the block ends."""
    if isinstance(mistakes, Mapping):
        return planting.planted(mistakes)
    return planted(*mistakes)


def under(mistakes: Mistakes, function: Callable[P, R], *given: P.args, **named: P.kwargs) -> R:
    """The result of a call while the model has these mistakes."""
    with mistaken(mistakes):
        return function(*given, **named)


@functools.cache
def trace_of(fault: str, check: str = "") -> Trace:
    """The shortest trace on which a fault breaks this check, or one that is named for it."""
    chosen = fault_named(fault)
    cluster = cluster_named(chosen.cluster)
    checks = [CHECKS[name] for name in ([check] if check else chosen.breaks)]
    outcome = under([chosen], explore, cluster, checks)
    changes = under([chosen], record, ModelMachine(cluster), outcome.events)
    assert changes is not None
    return Trace(cluster, outcome.events, changes, outcome.finding, (fault,), seed=7)


def asked_under(mistakes: Mistakes, checks: Iterable[Check]) -> list[Check]:
    """These checks, each asked while the model has these mistakes. They are asked of a step
    together, because to replace functions takes longer than to ask."""
    every = tuple(checks)
    asked: Step | None = None
    answers: list[list[Judged]] = []

    def asking(place: int, each: Check) -> Check:
        def answers_of(step: Step, cluster: Cluster) -> list[Judged]:
            nonlocal asked, answers
            if step is not asked:
                with mistaken(mistakes):
                    answers = [list(one.of_step(cluster, step)) for one in every]
                asked = step
            return answers[place]

        return dataclasses.replace(each, function=answers_of)

    return [asking(place, each) for place, each in enumerate(every)]
