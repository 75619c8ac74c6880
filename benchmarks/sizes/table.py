"""The table of small mutants of the rules of arithmetic, and what tells each from its rule.

    PYTHONPATH=. python benchmarks/sizes/table.py > reports/sizes.md

The model runs the clusters of the default search, and the numbers of each call of a rule are noted.
Where a mutant differs from its rule at such numbers, that step is taken again with the mutant
planted, and the run is driven to its end.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from benchmarks.sizes.mutants import GIVEN, POSITIVE, RULES, Mutant, Sizes, kinds, mutants, smallest
from kvproof.invariants.registry import CHECKS
from kvproof.model import planting
from kvproof.model.config import Cluster
from kvproof.model.events import Event
from kvproof.model.machine import ModelMachine
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import State
from kvproof.model.step import Step
from kvproof.strategies.drain import drain
from kvproof.strategies.run import Run, Violated
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.sampling.wide import EPISODES, drawn

RANDOM = len(CLUSTERS)
"""Random clusters that are run, beside each preset once."""

PLACES = 3
"""Steps that are kept for the same numbers, each of another cluster."""

TRIES = 12
"""Steps that are taken with a mutant, each with other numbers or of another cluster."""

TITLE = "# Small mutants of the arithmetic"
ABOUT = """
Each rule of `model/arithmetic/counts.py` with one small change, made from its syntax tree. *Sizes*
are the smallest at which the two differ, by Z3 (a truth value is 0 or 1). *Cluster* is a preset or
a random cluster of the default search in which the model takes another step with the change, and
*result* the check that notices it there. Made by `benchmarks/sizes/table.py`.
"""
HEAD = "| place | was | instead | sizes | cluster | result |"
EQUAL = "equal everywhere, proved"
STEP = "another step, no check"
OPEN = "OPEN"

EVENTUALLY = next(check.id for check in CHECKS.values() if check.kind == "eventually")

Numbers = tuple[Any, ...]


class Place(NamedTuple):
    """A step that calls a rule."""

    cluster: Cluster
    state: State
    event: Event


Calls = dict[str, dict[Numbers, list[Place]]]
"""For each rule the numbers that it was called with, and where."""


class Told(NamedTuple):
    """What tells a mutant from its rule: a `cluster`, and the check that is broken there; empty
    where only the step is another one."""

    cluster: str
    check: str


def called(clusters: Iterator[Cluster], episodes: int = EPISODES) -> Calls:
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
        names = list(kinds(name))

        def noted(*given: Any, **named: Any) -> Any:
            if now:
                rest = {**DEFAULTS, **named}
                numbers = (*given, *(rest[n] for n in names[len(given) :]))
                places = calls[name].setdefault(numbers, [])
                if len(places) < PLACES and now[0].cluster.name not in [
                    p.cluster.name for p in places
                ]:
                    places.append(now[0])
            return RULES[name](*given, **named)

        return noted

    with planting.planted({f"arithmetic.counts:{name}": noting(name) for name in RULES}):
        for number, cluster in enumerate(clusters):
            sample(cluster, Noting, (), seed=number, examples=episodes)
    return calls


DEFAULTS = {
    "eagle_drop_blocks": 0,
    "eagle_drop_tokens": 0,
    "equal_ratios": True,
    "fresh": 0,
    "scratch": 0,
}
"""What a rule takes for numbers that are not given."""


def told_apart(mutant: Mutant, calls: Calls) -> Told | None:
    """The first cluster in which a check notices the mutant; else one in which a step is another
    one. None where there is neither."""
    found = None
    for place in islice(_places(mutant, calls), TRIES):
        check = _noticed(mutant, place)
        if check:
            return Told(place.cluster.name, check)
        if check is not None:
            found = found or Told(place.cluster.name, "")
    return found


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


def _noticed(mutant: Mutant, place: Place) -> str | None:
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


def row(mutant: Mutant, sizes: Sizes, told: Told | None) -> str:
    """The line of the table for a mutant."""
    if sizes.proved:
        result = EQUAL
    elif told is None:
        result = OPEN
    else:
        result = f"`{told.check}`" if told.check else STEP
    where = f"`{told.cluster}`" if told else ""
    cells = (f"`{mutant.place}`", f"`{mutant.was}`", f"`{mutant.instead}`", sizes.text, where)
    return f"| {' | '.join((*cells, result))} |"


def clusters() -> Iterator[Cluster]:
    """The presets and as many random clusters, as the default search draws them."""
    return islice(drawn(0), 2 * RANDOM)


def page(calls: Calls, answer: Callable[[Mutant], Sizes] = smallest) -> str:
    """The page."""
    lines: list[str] = []
    for name in RULES:
        lines += ["", f"## `{name}`", "", HEAD, "|---" * 6 + "|"]
        lines += [row(each, answer(each), told_apart(each, calls)) for each in mutants(name)]
    cells = [line.rsplit("|", 2)[1].strip() for line in lines if line.startswith("| `")]
    equal, opened, steps = (cells.count(word) for word in (EQUAL, OPEN, STEP))
    told = len(cells) - equal - opened
    total = (
        f"{len(cells)} mutants of {len(RULES)} rules: {told} told apart ({told - steps} by a check, "
        f"{steps} by another step alone), {equal} equal everywhere, {opened} open."
    )
    return "\n".join([TITLE, ABOUT, total, *lines, ""])


if __name__ == "__main__":
    sys.stdout.write(page(called(clusters())))
