"""A count-level system as Z3 terms: some sizes are fixed, the others are variables."""

from collections.abc import Iterator, Mapping
from typing import Any

import z3

from kvproof.model.arithmetic.algebra import all_of, both, not_
from kvproof.model.arithmetic.system import System
from kvproof.strategies.symbolic.query import checked

CHECK_S = 10.0
"""The time limit of one question to a plain solver."""


class Posed:
    """A system as Z3 terms, in its own context (see `solve`)."""

    def __init__(self, system: System, claim: str, fixed: Mapping[str, int]) -> None:
        self.system, self.name, self.fixed = system, claim, fixed
        self.context = z3.Context()
        names = system.parameters._fields
        self.open = {n: z3.Int(n, self.context) for n in names if n not in fixed}
        self.sizes = system.parameters(*({**self.open, **fixed}[n] for n in names))
        self.start = system.initial(self.sizes)
        kind = type(self.start)
        self.state = kind(*(z3.Int(n, self.context) for n in kind._fields))
        at_least_0 = (v >= 0 for v in self.open.values())
        self.given = self.truth(all_of(*at_least_0, system.given(self.sizes)))

    @property
    def variables(self) -> tuple[Any, ...]:
        """The open sizes and the counts."""
        return (*self.open.values(), *self.state)

    def truth(self, value: Any) -> Any:
        """A truth as a term."""
        return z3.BoolVal(value, self.context) if isinstance(value, bool) else value

    def numbers(self, state: Any) -> tuple[Any, ...]:
        """The open sizes and the counts of a state, as terms."""
        plain = (z3.IntVal(n, self.context) if isinstance(n, int) else n for n in state)
        return (*self.open.values(), *plain)

    def holds(self, state: Any) -> Any:
        """The claim about a state."""
        return self.truth(self.system.invariants[self.name](self.sizes, state))

    def actions(self) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
        """For each action: the variables for its choices, its guard, and the state after it."""
        for action in self.system.actions:
            choices = action.choices(self.sizes)
            chosen = tuple(z3.Int(f"chosen_{n}", self.context) for n in choices)
            guard = all_of(
                *(r.has(v) for r, v in zip(choices.values(), chosen, strict=True)),
                action.enabled(self.sizes, self.state),
                action.allowed(self.sizes, self.state, *chosen),
            )
            yield chosen, self.truth(guard), action.then(self.sizes, self.state, *chosen)

    def after(self, invariant: Any, state: Any) -> Any:
        """The invariant about another state."""
        return z3.substitute(invariant, *zip(self.variables, self.numbers(state), strict=True))

    def starts(self, counts: Mapping[str, int]) -> bool:
        """Whether the system may start with these sizes and counts."""
        return self.answer(both(self.given, self._are(self.start, counts))) == "sat"

    def leads(self, before: Mapping[str, int], after: Mapping[str, int]) -> bool:
        """Whether an action leads from one state to the other."""
        here = all_of(*(v == before[str(v)] for v in self.variables))
        return any(
            self.answer(all_of(here, guard, self._are(then, after))) == "sat"
            for _, guard, then in self.actions()
        )

    def _are(self, state: Any, counts: Mapping[str, int]) -> Any:
        terms = zip(self.numbers(state), self.variables, strict=True)
        return all_of(*(term == counts[str(v)] for term, v in terms))

    def valid(self, truth: Any) -> bool:
        """Whether a plain solver finds no counterexample to a formula."""
        return self.answer(not_(truth)) == "unsat"

    def answer(self, truth: Any) -> str:
        """The answer of a plain solver to a formula."""
        solver = z3.Solver(ctx=self.context)
        solver.set("random_seed", 0)
        solver.set("timeout", int(CHECK_S * 1000))
        return checked(solver, truth)
