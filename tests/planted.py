"""Calls made while the model has mistakes."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import ParamSpec, TypeVar

from kvproof.invariants.check import Check
from kvproof.model import planting
from kvproof.model.because import Judged
from kvproof.model.config import Cluster
from kvproof.model.faults.fault import Fault, planted
from kvproof.model.step import Step

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
