"""The table of small mutants of the rules of arithmetic, and what distinguishes each from its rule.

    PYTHONPATH=. python benchmarks/sizes/table.py > reports/sizes.md

The model runs presets and random clusters, and the numbers of each call of a rule are noted.
Where a mutant differs from its rule at such numbers, that step is taken again with the mutant
planted, and the run is driven to its end.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count, islice
from random import Random
from typing import Any, NamedTuple

from benchmarks.sizes.mutants import (
    ARGUED,
    GIVEN,
    POSITIVE,
    RULES,
    Mutant,
    Sizes,
    kinds,
    mutants,
    smallest,
)
from kvproof.invariants.registry import CHECKS
from kvproof.model import planting
from kvproof.model.config import Cluster
from kvproof.model.config.features.registry import modelled
from kvproof.model.events import Event
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS, cluster_named
from kvproof.model.state import State
from kvproof.model.step import Step
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.sampling.stateful import sample
from tests.functions.function import Function
from tests.functions.registry import FUNCTIONS

EPISODES = 10
"""Random episodes of each cluster."""

PLACES = 60
PLACES_OF_CLUSTER = 20
"""Steps that are kept for the same numbers, in all and of each cluster."""

SAME_MAX = 300
"""Steps that are taken with a mutant, until one is another step with it."""

TRIES = 8
"""Runs that such steps begin, until a check notices the mutant."""

TITLE = "# Small mutants of the arithmetic"
ABOUT = """
Each rule of `model/arithmetic/counts.py` with one small change, made from its syntax tree. *Sizes*
are the smallest at which the two differ, by Z3 (a truth value is 0 or 1). *Cluster* is a preset or
a random cluster in which the model takes another step with the change, and
*result* the check that notices it there. *Live vLLM* has the functions of
`tests/functions` with a case, on which vLLM is called, at which the two differ. Made by
`benchmarks/sizes/table.py`.
"""
HEAD = "| place | was | instead | sizes | cluster | result | live vLLM |"
RESULT = 5
"""The column of the result."""
EQUAL = "equal everywhere, proved"
USED = "equal where it is used: "
STEP = "another step, no check"
FUNCTION = "a function of vLLM alone"
OPEN = "OPEN: differs in no step"

EVENTUALLY = next(check.id for check in CHECKS.values() if check.kind == "eventually")

Numbers = tuple[Any, ...]


class Place(NamedTuple):
    """A step that calls a rule."""

    cluster: Cluster
    state: State
    event: Event


Calls = dict[str, dict[Numbers, list[Place]]]
"""For each rule the numbers that it was called with, and where."""


class Noticed(NamedTuple):
    """What distinguishes a mutant from its rule: a `cluster`, and the check that is broken there;
    empty where only the step is another one."""

    cluster: str
    check: str


def called(clusters: Iterable[Cluster], episodes: int = EPISODES) -> Calls:
    """The calls of each rule in random runs of these clusters."""
    calls: Calls = {name: {} for name in RULES}
    now: list[Place] = []

    class Noting(ModelMachine):
        """The model, which notes the step that it takes."""

        def take(self, event: Event) -> Step:
            now[:] = [Place(self.cluster, self.state, event)]
            try:
                return super().take(event)
            finally:
                now.clear()

    def noting(name: str) -> Callable[..., Any]:
        signature = inspect.signature(RULES[name])

        def noted(*given: Any, **named: Any) -> Any:
            if now:
                bound = signature.bind(*given, **named)
                bound.apply_defaults()
                places = calls[name].setdefault(tuple(bound.arguments.values()), [])
                here = sum(p.cluster.name == now[0].cluster.name for p in places)
                new = not places or places[-1] is not now[0]
                if new and len(places) < PLACES and here < PLACES_OF_CLUSTER:
                    places.append(now[0])
            return RULES[name](*given, **named)

        return noted

    with planting.planted({f"arithmetic.counts:{name}": noting(name) for name in RULES}):
        for cluster in clusters:
            sample(cluster, Noting, (), examples=episodes)
    return calls


def noticed(mutant: Mutant, calls: Calls) -> Noticed | None:
    """The first cluster in which a check notices the mutant; else one in which a step is another
    one. None where there is neither."""
    other = None
    tried = 0
    for place in islice(_places(mutant, calls), SAME_MAX):
        check = _broken(mutant, place)
        if check:
            return Noticed(place.cluster.name, check)
        if check is not None:
            other = other or Noticed(place.cluster.name, "")
            tried += 1
            if tried == TRIES:
                break
    return other


@functools.cache
def _cases() -> list[tuple[Function, list[tuple[dict[str, int], tuple[int, ...]]]]]:
    """The cases on which functions of vLLM are called, each with what the rule says."""
    return [(f, [(numbers, f.ours(numbers)) for numbers in f.cases]) for f in FUNCTIONS.values()]


def on_vllm(mutant: Mutant) -> list[str]:
    """The functions of vLLM with a case at which the mutant is not what vLLM must compute."""
    right_cases = _cases()
    with planting.planted({f"arithmetic.counts:{mutant.rule}": mutant.wrong}):
        return [
            function.id
            for function, cases in right_cases
            if any(_ours(function, numbers) != right for numbers, right in cases)
        ]


def _ours(function: Function, numbers: dict[str, int]) -> tuple[int, ...] | None:
    try:
        return function.ours(numbers)
    except ZeroDivisionError:
        return None


def _places(mutant: Mutant, calls: Calls) -> Iterator[Place]:
    """The steps with numbers at which a mutant differs, first one of each cluster."""
    rest, seen = [], set()
    for numbers, places in calls[mutant.rule].items():
        for place in places if mutant.differs(*numbers) else ():
            if place.cluster.name in seen:
                rest.append(place)
            else:
                seen.add(place.cluster.name)
                yield place
    yield from rest


def _broken(mutant: Mutant, place: Place) -> str | None:
    """The check that is broken by a step with a mutant, or by the run after it. Empty where the
    step is another one and nothing is broken; None where it is the same."""
    right = _machine(place).take(place.event)
    with planting.planted({f"arithmetic.counts:{mutant.rule}": mutant.wrong}):
        try:
            run = Run(_machine(place), CHECKS.values())
            run.take_one(place.event)
            step = run.steps[0]
            if (step.event, step.after) == (right.event, right.after):
                return None
            drain(run, EVENTUALLY)
        except Violated as violated:
            return violated.finding.invariant
        except Exception as error:
            return f"the model ends with {type(error).__name__}"
    return ""


def _machine(place: Place) -> ModelMachine:
    machine = ModelMachine(place.cluster)
    machine.believe(place.state)
    return machine


def outside(calls: Calls) -> list[tuple[str, Numbers]]:
    """The calls with numbers that are not those that Z3 was asked about."""
    return [
        (name, numbers)
        for name, by_numbers in calls.items()
        for numbers in by_numbers
        if not _given(name, dict(zip(kinds(name), numbers, strict=True)))
    ]


def _given(name: str, numbers: dict[str, Any]) -> bool:
    lowest = all(value >= (n in POSITIVE) for n, value in numbers.items())
    return lowest and (name not in GIVEN or bool(GIVEN[name](**numbers)))


def row(mutant: Mutant, sizes: Sizes, by: Noticed | None, vllm: list[str]) -> str:
    """The line of the table for a mutant."""
    if sizes.proved:
        result = EQUAL
    elif by is None:
        argued = ARGUED.get(mutant.name, "")
        result = FUNCTION if vllm else USED + argued if argued else OPEN
    else:
        result = f"`{by.check}`" if by.check else STEP
    where = by.cluster if by else ""
    cells = (
        f"`{mutant.place}`",
        f"`{mutant.was}`",
        f"`{mutant.instead}`",
        sizes.text,
        where,
        result,
    )
    return f"| {' | '.join((*cells, ', '.join(f'`{each}`' for each in vllm)))} |"


def rows(text: str) -> Iterator[tuple[str, list[str]]]:
    """The rows of the page, each as the name of its mutant and its cells."""
    rule = ""
    for line in text.splitlines():
        if line.startswith("## "):
            rule = line.split("`")[1]
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            place, was, instead = (cell.strip("`") for cell in cells[:3])
            yield f"{rule}:{place}: {was} -> {instead}", cells


def clusters() -> Iterator[Cluster]:
    """The presets, shuffled, with a random cluster after each."""
    numbers = (cluster_named(f"random:{number}") for number in count())
    presets = [*CLUSTERS.values()]
    Random(0).shuffle(presets)
    return chain.from_iterable(zip(presets, filter(modelled, numbers), strict=False))


def page(calls: Calls, answer: Callable[[Mutant], Sizes] = smallest) -> str:
    """The page."""
    lines: list[str] = []
    for name in RULES:
        lines += ["", f"## `{name}`", "", HEAD, "|---" * 7 + "|"]
        lines += [
            row(each, answer(each), noticed(each, calls), on_vllm(each)) for each in mutants(name)
        ]
    cells = [each[RESULT] for _, each in rows("\n".join(lines))]
    equal, opened, steps, alone = map(cells.count, (EQUAL, OPEN, STEP, FUNCTION))
    used = sum(cell.startswith(USED) for cell in cells)
    apart = len(cells) - equal - used - opened
    total = (
        f"{len(cells)} mutants of {len(RULES)} rules: {apart} distinguished "
        f"({apart - steps - alone} by a check, {steps} by another step, {alone} by a case of a "
        f"function of vLLM alone), {equal} equal everywhere, {used} equal where they are used, "
        f"{opened} open."
    )
    return "\n".join([TITLE, ABOUT, total, *lines, ""])


if __name__ == "__main__":
    sys.stdout.write(page(called(clusters())))
