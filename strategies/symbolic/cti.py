"""A counterexample to induction, told: the two states, and whether the first can be reached.

Where it can, the claim is false, and a run from the start shows it. Where it cannot, a claim is
missing that would rule it out.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from kvproof.model.arithmetic.algebra import Num, Truth, all_of, both
from kvproof.model.arithmetic.ranges import Range, between
from kvproof.model.arithmetic.system import Action, System, flat
from kvproof.model.counting_abstraction.registry import systems
from kvproof.model.counting_abstraction.relation import told
from kvproof.model.reference.rules import Rules
from kvproof.strategies.symbolic.induction import Step
from kvproof.strategies.systems.columns import ColumnSearch

STATES_MAX = 20_000
"""States looked at from the start."""

CHOICES_MAX = 6
"""Choices are tried up to this number, at most."""

LOWEST, COUNTS_MAX = -64, 63
"""Counts are followed as far as these."""


class Counterexample(NamedTuple):
    """Sizes and counts before and after a step that breaks a claim. `run` leads from the start to
    where the claim is broken with these sizes; empty where none was found among `looked_at` states.
    """

    sizes: str
    before: str
    step: str
    after: str
    run: tuple[str, ...]
    looked_at: int

    @property
    def facts(self) -> tuple[str, ...]:
        """The step, in the order in which a reader should hear it."""
        return (
            f"sizes: {self.sizes}",
            f"before: {self.before}",
            f"then {self.step}, after: {self.after}",
            self.sentence,
        )

    @property
    def sentence(self) -> str:
        """What became of the search for a run."""
        if self.run:
            return f"it is reachable: {', then '.join(self.run)}"
        return (
            f"no run to such a state was found among {self.looked_at} states from the start: "
            "a claim is missing, or the run is longer"
        )


def _bounded(action: Action, highest: int) -> Action:
    """The action with choices and counts up to a number. A junction matters to the policy only."""

    def choices(parameters: Any) -> Mapping[str, Range]:
        return {
            name: between(
                r.lowest, 0 if name == "shared_prefix_boundary" else max(highest, r.lowest)
            )
            for name, r in action.choices(parameters).items()
        }

    def allowed(parameters: Any, state: Any, *chosen: Num) -> Truth:
        after = flat(action.then(parameters, state, *chosen))
        small = all_of(*(n <= COUNTS_MAX for n in after))
        return both(small, action.allowed(parameters, state, *chosen))

    return dataclasses.replace(action, choices=choices, allowed=allowed)


def _run(system: System, claim: str, sizes: Any, highest: int) -> tuple[tuple[str, ...], int]:
    """A shortest run to where the claim is broken, and the number of states looked at."""
    start = system.initial(sizes)
    small = dataclasses.replace(
        system,
        ranges=lambda _sizes: type(start)(*(between(LOWEST, COUNTS_MAX) for _ in start)),
        actions=tuple(_bounded(a, min(highest, CHOICES_MAX)) for a in system.actions),
        invariants={claim: system.invariants[claim]},
    )
    reached = ColumnSearch(small, sizes).run(STATES_MAX)
    steps = tuple(f"{taken.action}{taken.choices or ''}" for taken in reached.trace)
    return steps if reached.broken else (), reached.states


def counterexample(
    step: Step, claim: str, rules: Rules, numbers: Mapping[str, int]
) -> Counterexample:
    """The numbers that refute a claim after a step, told."""
    sizes, state, chosen = step.before(rules, numbers)
    system = systems(rules)[step.system]
    run, looked_at = _run(system, claim, sizes, max([*state, *chosen], default=1))
    after = told(step.after(rules, numbers))
    does = f"{step.action}{chosen or ''}"
    return Counterexample(told(sizes), told(state), does, after, run, looked_at)


def run_to(system: System, claim: str, sizes: Any) -> Counterexample | None:
    """A run that breaks a claim with these sizes, told; None where none is found."""
    run, looked_at = _run(system, claim, sizes, CHOICES_MAX)
    if not run:
        return None
    return Counterexample(told(sizes), "the start", "some steps", "it is broken", run, looked_at)


def walked_into(system: System, claim: str, sizes: Any, state: Any) -> Counterexample:
    """Counts on a walk that break a claim, told: it is false, though a step of induction keeps it
    where the other claims hold."""
    run, looked_at = _run(system, claim, sizes, max(state))
    run = run or ("a random walk leads there",)
    return Counterexample(told(sizes), "the start", "some steps", told(state), run, looked_at)
