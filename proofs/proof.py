"""This module says what became of one obligation; for an induction that fails, the counterexample
(CTI) in words: the two states, and whether the first is reachable.

If it is reachable, the claim is false, and a run from the start shows it. If not, a further claim
is needed to exclude it.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kvproof.model.arithmetic.algebra import Num, Truth, all_of, both
from kvproof.model.arithmetic.ranges import Range, between
from kvproof.model.arithmetic.system import Action, Numbers, System
from kvproof.model.because import Reasons, reason
from kvproof.model.counting_abstraction.registry import systems
from kvproof.model.counting_abstraction.relation import shown
from kvproof.model.finding import Finding
from kvproof.model.wording import literal
from kvproof.proofs.induction import InductionStep
from kvproof.strategies.verdict import Verdict

STATES_MAX = 20_000
"""The maximum number of states examined from the start."""

CHOICES_MAX = 6
"""The largest value tried for a choice."""

COUNTS_MAX = 63
"""The largest count that is explored."""


class Counterexample(NamedTuple):
    """Sizes and counts before and after a step that breaks a claim. `run` leads from the start to a
    state that breaks the claim with these sizes; it is empty if none was found among `looked_at`
    states.
    """

    sizes: str
    before: str
    step: str
    after: str
    run: tuple[str, ...]
    looked_at: int

    @property
    def reasons(self) -> Reasons:
        """The step, in reading order."""
        return (
            reason("sizes", "sizes: {sizes}", sizes=self.sizes),
            reason("before", "before: {before}", before=self.before),
            reason("after", "then {step}, after: {after}", step=self.step, after=self.after),
            reason("run", literal(self.sentence), run=self.run, looked_at=self.looked_at),
        )

    @property
    def sentence(self) -> str:
        """The result of the search for a run."""
        if self.run:
            return f"it is reachable: {', then '.join(self.run)}"
        return (
            f"no run to such a state was found among {self.looked_at} states from the start: "
            "a claim is missing, or the run is longer"
        )


def _bounded(action: Action, highest: int) -> Action:
    """Return the action with bounded choices and counts. A shared prefix boundary affects only the
    policy."""

    def choices(parameters: Any) -> Mapping[str, Range]:
        return {
            name: between(
                r.lowest, 0 if name == "shared_prefix_boundary" else max(highest, r.lowest)
            )
            for name, r in action.choices(parameters).items()
        }

    def allowed(parameters: Any, state: Any, *chosen: Num) -> Truth:
        after = action.then(parameters, state, *chosen)
        small = all_of(*(count <= COUNTS_MAX for count in after))
        return both(small, action.allowed(parameters, state, *chosen))

    return dataclasses.replace(action, choices=choices, allowed=allowed)


def _steps(system: System, parameters: Numbers, state: Numbers) -> Iterator[tuple[str, Numbers]]:
    """Return all steps from a state on ints, in words, with the state after."""
    for action in system.actions:
        if action.enabled(parameters, state):
            ranges = action.choices(parameters).values()
            values = (
                range(low, (CHOICES_MAX if high is None else high) + 1) for low, high in ranges
            )
            for chosen in itertools.product(*values):
                if action.allowed(parameters, state, *chosen):
                    after = action.then(parameters, state, *chosen)
                    yield f"{action.name}{chosen or ''}", after


def shortest_run(
    system: System, parameters: Numbers, states_max: int
) -> tuple[tuple[str, ...], int]:
    """Find a shortest run to a state that breaks an invariant, and the number of states examined,
    breadth first. The run is empty if there is none, or none among about `states_max` states."""
    level = [system.initial(parameters)]
    runs: dict[Numbers, tuple[str, ...]] = {level[0]: ()}
    while level:
        for state in level:
            if not all(holds(parameters, state) for holds in system.invariants.values()):
                return runs[state], len(runs)
        if len(runs) > states_max:
            break
        following = []
        for state in level:
            for step, after in _steps(system, parameters, state):
                if after not in runs:
                    runs[after] = (*runs[state], step)
                    following.append(after)
        level = following
    return (), len(runs)


def _run(system: System, claim: str, sizes: Any, highest: int) -> tuple[tuple[str, ...], int]:
    """Find a shortest run to a state that breaks the claim, and count the states examined."""
    small = dataclasses.replace(
        system,
        actions=tuple(_bounded(a, min(highest, CHOICES_MAX)) for a in system.actions),
        invariants={claim: system.invariants[claim]},
    )
    return shortest_run(small, sizes, STATES_MAX)


def counterexample(step: InductionStep, claim: str, numbers: Mapping[str, int]) -> Counterexample:
    """Put the numbers that refute a claim after a step into words."""
    sizes, state, chosen = step.before(numbers)
    system = systems()[step.system]
    run, looked_at = _run(system, claim, sizes, max([*state, *chosen], default=1))
    after = shown(step.after(numbers))
    does = f"{step.action}{chosen or ''}"
    return Counterexample(shown(sizes), shown(state), does, after, run, looked_at)


def run_to(system: System, claim: str, sizes: Any) -> Counterexample | None:
    """Find a run that breaks a claim with these sizes, in words; None if none is found."""
    run, looked_at = _run(system, claim, sizes, CHOICES_MAX)
    if not run:
        return None
    return Counterexample(shown(sizes), "the start", "some steps", "it is broken", run, looked_at)


@dataclass(frozen=True)
class Proof:
    """What became of one obligation.

    `id` and `name` are the obligation's. If the verdict is VIOLATED, `numbers` are values of all
    variables that break the obligation. `reason` says why it is UNKNOWN. `cases` counts the queries
    to Z3 (in an induction, one for each action and one for the start). `counterexample` is the step
    that refutes an induction.
    """

    id: str
    name: str
    verdict: Verdict
    numbers: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    reason: str = ""
    method: str = "arithmetic"
    cases: int = 1
    counterexample: Counterexample | None = None

    @property
    def finding(self) -> Finding | None:
        """The violation as a finding: the numbers, and the obligation that they break. None if
        there is no violation."""
        if self.verdict is not Verdict.VIOLATED:
            return None
        numbers: Reasons = tuple(
            reason("number", "{name} = {value}", name=name, value=value)
            for name, value in self.numbers.items()
        )
        if self.counterexample is not None:
            numbers = self.counterexample.reasons
        must = reason("must_be_true", literal(f"this must be true: {self.name}"))
        return Finding(self.id, (*numbers, must))
