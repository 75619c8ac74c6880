"""Induction on the count-level systems: a claim holds at the start, and every action keeps it.

All claims about a system are assumed before an action, and each must hold after it. So one step of
induction proves their conjunction, for all sizes.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from kvproof.model.arithmetic.algebra import Num, Truth, all_of
from kvproof.model.arithmetic.ranges import Range, at_least
from kvproof.model.arithmetic.system import Action, System
from kvproof.model.counting_abstraction.registry import TABLES, systems

START = "start"
"""The name of the base case: the claims hold initially."""

CHOSEN = "chosen_"
"""The prefix of the names of variables for choices."""

Values = Mapping[str, Num]
"""Numbers or terms by the names of variables: sizes, counts before, choices."""


class Claimed(NamedTuple):
    """One claim about one count-level system: its id, and its sentence."""

    id: str
    name: str
    system: str
    claim: str


class StepVariables(NamedTuple):
    """The variables of a step by their role."""

    sizes: Any
    state: Any
    chosen: tuple[Num, ...]


class InductionStep(NamedTuple):
    """An action of a system, or its start, as a step of the induction."""

    system: str
    action: str

    def _of(self) -> tuple[System, Action | None]:
        system = systems()[self.system]
        return system, next((a for a in system.actions if a.name == self.action), None)

    @property
    def variables(self) -> dict[str, Range]:
        """The variables, and the values each may have."""
        system, action = self._of()
        ranges = dict.fromkeys(system.parameters._fields, at_least(0))
        if action is None:
            return ranges
        sizes = system.parameters(*(1 for _ in ranges))
        ranges |= dict.fromkeys(type(system.initial(sizes))._fields, at_least(0))
        return ranges | {CHOSEN + n: r for n, r in action.choices(sizes).items()}

    def before(self, values: Values) -> StepVariables:
        """The sizes, the counts before the step, and what is chosen."""
        system, action = self._of()
        sizes = system.parameters(*(values[n] for n in system.parameters._fields))
        start = system.initial(sizes)
        if action is None:
            return StepVariables(sizes, start, ())
        state = type(start)(*(values[n] for n in start._fields))
        return StepVariables(sizes, state, tuple(values[CHOSEN + n] for n in action.choices(sizes)))

    def given(self, values: Values, *, without: frozenset[str] = frozenset()) -> Truth:
        """Whether the step is possible and all claims but those `without` hold before it."""
        system, action = self._of()
        sizes, state, chosen = self.before(values)
        ranges = (r.has(values[name]) for name, r in self.variables.items())
        if action is None:
            return all_of(*ranges, system.given(sizes))
        return all_of(
            *ranges,
            system.given(sizes),
            *(holds(sizes, state) for n, holds in system.invariants.items() if n not in without),
            action.enabled(sizes, state),
            action.allowed(sizes, state, *chosen),
        )

    def alone(self, values: Values) -> dict[str, Truth]:
        """Each claim before the step, by name."""
        system, action = self._of()
        sizes, state, _ = self.before(values)
        if action is None:
            return dict.fromkeys(system.invariants, True)
        return {name: holds(sizes, state) for name, holds in system.invariants.items()}

    def after(self, values: Values) -> Any:
        """The counts after the step."""
        _, action = self._of()
        sizes, state, chosen = self.before(values)
        return state if action is None else action.then(sizes, state, *chosen)

    def holds(self, claim: str, values: Values) -> Truth:
        """Whether a claim holds after the step."""
        system, _ = self._of()
        sizes = self.before(values).sizes
        return system.invariants[claim](sizes, self.after(values))

    def broken_by(
        self, claim: str, numbers: Mapping[str, int], *, without: frozenset[str] = frozenset()
    ) -> bool:
        """Whether these ints allow the step and break the claim."""
        given = bool(self.given(numbers, without=without))
        return given and not self.holds(claim, numbers)


def steps(system: str) -> tuple[InductionStep, ...]:
    """The start and the actions of a system."""
    return tuple(
        InductionStep(system, n) for n in (START, *(a.name for a in systems()[system].actions))
    )


def sentence(system: System, claim: str) -> str:
    """A claim in words; P and D keep their capitals."""
    words = " ".join((system.invariants[claim].__doc__ or claim).split()).rstrip(".")
    about = f"{system.name} table" if system.name in TABLES else system.name
    first = words[:1] if words[1:2] in (" ", "'") else words[:1].lower()
    return f"{about}: {first}{words[1:]}"


@functools.cache
def claimed() -> dict[str, Claimed]:
    """All claims about all count-level systems, by id."""
    found = {}
    for system in systems().values():
        for claim in system.invariants:
            name = f"{system.name.replace(' ', '_')}.{claim}"
            found[name] = Claimed(name, sentence(system, claim), system.name, claim)
    return found
