"""A transition system over integers, written once in the algebra.

Its actions are formulas, so one text runs on ints (one step) and on Z3 terms (all sizes). A state
and the parameters are `NamedTuple`s of numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kvproof.model.arithmetic.algebra import Num, Truth, both, if_
from kvproof.model.arithmetic.ranges import Range

Numbers = Any
"""A `NamedTuple` of numbers: parameters or a state."""

State = TypeVar("State", bound=tuple[Any, ...])
"""The type of a state of one system."""


@dataclass(frozen=True)
class Action:
    """One kind of step.

    `enabled` depends on the state alone. `choices` are the free values of the step, each with the
    widest range that integer parameters permit; `allowed` narrows them. `then` is the state after
    the step. `policy` restricts the choices to those of the scheduler: a step that the scheduler
    would not take is not a step of the system, although the claims hold after it too and are proved
    without `policy`. All except `enabled` take the choices as arguments after parameters and
    state.
    """

    name: str
    enabled: Callable[[Numbers, Numbers], Truth]
    then: Callable[..., Numbers]
    choices: Callable[[Numbers], Mapping[str, Range]] = lambda _parameters: {}
    allowed: Callable[..., Truth] = lambda *_all: True
    policy: Callable[..., Truth] = lambda *_all: True

    def may(self, parameters: Numbers, state: Numbers, *chosen: Num) -> Truth:
        """Whether the step is possible in a state with these choices."""
        permitted = both(
            self.allowed(parameters, state, *chosen), self.policy(parameters, state, *chosen)
        )
        return both(self.enabled(parameters, state), permitted)


@dataclass(frozen=True)
class System:
    """A transition system: its initial state, its actions, and its invariants.

    Proofs are for all `parameters` (their type) for which `given` holds.
    """

    name: str
    initial: Callable[[Numbers], Numbers]
    actions: Sequence[Action]
    invariants: Mapping[str, Callable[[Numbers, Numbers], Truth]] = field(default_factory=dict)
    parameters: Any = None
    given: Callable[[Numbers], Truth] = lambda _parameters: True


def where(condition: Truth, then: State, otherwise: State) -> State:
    """Choose one of two states of a system by a condition, field by field."""
    fields = (if_(condition, a, b) for a, b in zip(then, otherwise, strict=True))
    return type(then)(*fields)
