"""A transition system over whole numbers, written once in the algebra.

Its actions are formulas, so one text runs on ints (one step), on columns of ints (many states at
once) and on Z3 terms (all sizes). A state is a `NamedTuple` whose fields are numbers, such tuples,
or plain tuples of them; parameters are a `NamedTuple` of numbers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvproof.model.arithmetic.algebra import Num, Truth, both
from kvproof.model.arithmetic.ranges import Range

Numbers = Any
"""A `NamedTuple` of numbers: parameters or a state."""


@dataclass(frozen=True)
class Action:
    """One kind of step.

    `enabled` asks the state alone. `choices` gives what the step leaves open, each with the widest
    range that parameters of ints allow; `allowed` narrows it. `then` is the state after the step.
    `policy` is what the scheduler makes of its freedom: a step it would not take is no step of the
    system, though all that is claimed would hold after it too, and is proved without it. All but
    `enabled` take the choices as arguments after parameters and state.
    """

    name: str
    enabled: Callable[[Numbers, Numbers], Truth]
    then: Callable[..., Numbers]
    choices: Callable[[Numbers], Mapping[str, Range]] = lambda _parameters: {}
    allowed: Callable[..., Truth] = lambda *_all: True
    policy: Callable[..., Truth] = lambda *_all: True

    def may(self, parameters: Numbers, state: Numbers, *chosen: Num) -> Truth:
        """Whether the step may be taken from a state with these choices."""
        chosen_well = both(
            self.allowed(parameters, state, *chosen), self.policy(parameters, state, *chosen)
        )
        return both(self.enabled(parameters, state), chosen_well)


@dataclass(frozen=True)
class System:
    """A transition system: where it starts, the range of each number of a state, its actions, and
    what must be true of every state. `alike` names the field whose entries may change places
    without making a difference (a plain tuple), empty for none. Proofs are for all `parameters`
    (the type of them) of which `given` holds."""

    name: str
    initial: Callable[[Numbers], Numbers]
    ranges: Callable[[Numbers], Numbers]
    actions: Sequence[Action]
    invariants: Mapping[str, Callable[[Numbers, Numbers], Truth]] = field(default_factory=dict)
    alike: str = ""
    parameters: Any = None
    given: Callable[[Numbers], Truth] = lambda _parameters: True


def flat(value: Numbers) -> Iterator[Num]:
    """The numbers of a state, in order."""
    if isinstance(value, tuple) and not isinstance(value, Range):
        for part in value:
            yield from flat(part)
    else:
        yield value


def shaped(like: Numbers, numbers: Iterator[Num]) -> Numbers:
    """The state of this shape with the next numbers in its places."""
    if not isinstance(like, tuple) or isinstance(like, Range):
        return next(numbers)
    parts = [shaped(part, numbers) for part in like]
    kind = type(like)
    return kind(*parts) if hasattr(kind, "_fields") else tuple(parts)
