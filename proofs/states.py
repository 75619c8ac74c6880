"""Breadth-first search of a `System` on ints, in its simplest form.

Cost: every formula is evaluated once for each state; memory holds every distinct state.
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvproof.model.arithmetic.system import Action, Numbers, System
from kvproof.model.errors import UsageError
from kvproof.strategies.verdict import Verdict


class ActionTaken(NamedTuple):
    """A step of a trace: the name of its action, and what was chosen."""

    action: str
    choices: tuple[int, ...] = ()


@dataclass
class Searched:
    """What a search of a system has reached.

    `states` is the number of distinct states. If an invariant broke, it is `broken`, `trace` is a
    shortest run to a state that breaks it, and the search ended with that level. `cut`: some states
    were not expanded.
    """

    states: int = 1
    broken: str = ""
    trace: tuple[ActionTaken, ...] = ()
    cut: bool = False
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """A search that was cut is never EXHAUSTED."""
        if self.broken:
            return Verdict.VIOLATED
        return Verdict.UNKNOWN if self.cut else Verdict.EXHAUSTED


Choices = list[tuple[int, ...]]


def choices(action: Action, parameters: Numbers) -> Choices:
    """All combinations of an action's choices, before `allowed` narrows them."""
    values = []
    for name, (lowest, highest) in action.choices(parameters).items():
        if highest is None:
            raise UsageError(
                f"The choice {name!r} of {action.name!r} has no end. Give it a highest value."
            )
        values.append(range(lowest, highest + 1))
    return list(itertools.product(*values))


class Stepper:
    """The steps of a system with these parameters, on ints."""

    def __init__(self, system: System, parameters: Numbers) -> None:
        self.parameters = parameters
        self.actions = [(action, choices(action, parameters)) for action in system.actions]

    def steps(self, state: Numbers) -> Iterator[tuple[ActionTaken, Numbers]]:
        """All steps from a state, with the state after."""
        parameters = self.parameters
        for action, combinations in self.actions:
            if action.enabled(parameters, state):
                for chosen in combinations:
                    if action.allowed(parameters, state, *chosen):
                        after = action.then(parameters, state, *chosen)
                        yield ActionTaken(action.name, chosen), after


Parents = dict[Numbers, tuple[Numbers, ActionTaken] | None]
"""Each state that was reached, with the step that reached it first."""


def search(system: System, parameters: Numbers, states_max: int | None = None) -> Searched:
    """Explore until all states are expanded, an invariant breaks, or more than `states_max` states
    are known at the end of a level. Returns what was reached."""
    began = time.perf_counter()
    stepper = Stepper(system, parameters)
    level = [system.initial(parameters)]
    parents: Parents = {level[0]: None}
    reached = Searched()
    while True:
        broken = _broken(system, parameters, level)
        if broken is not None:
            reached.broken, state = broken
            reached.trace = trace(parents, state)
            break
        if states_max is not None and len(parents) > states_max:
            reached.cut = True
            break
        following = []
        for state in level:
            for taken, after in stepper.steps(state):
                if after not in parents:
                    parents[after] = (state, taken)
                    following.append(after)
        if not following:
            break
        level = following
    reached.states = len(parents)
    reached.seconds = time.perf_counter() - began
    return reached


def trace(parents: Parents, state: Numbers) -> tuple[ActionTaken, ...]:
    """A shortest trace to a state."""
    taken: list[ActionTaken] = []
    while (parent := parents[state]) is not None:
        state, step = parent
        taken.append(step)
    return tuple(reversed(taken))


def _broken(
    system: System, parameters: Numbers, level: Sequence[Numbers]
) -> tuple[str, Numbers] | None:
    """The first invariant that is broken in a level, and where."""
    for name, holds in system.invariants.items():
        for state in level:
            if not holds(parameters, state):
                return name, state
    return None
