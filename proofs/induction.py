"""Induction on the count-level systems: a claim holds at the start, and every action keeps it.

All claims about a system are assumed before an action, and each must hold after it. So one step of
induction proves their conjunction, for all sizes. Each step is a query to Z3: is there a step that
breaks a claim although all claims hold before it? The assumptions of a step are built once, in
their own Z3 context (see `solve`); each claim gets a fresh solver.
"""

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import z3

from kvproof.model.arithmetic.algebra import Num, Truth, all_of
from kvproof.model.arithmetic.ranges import Range, at_least
from kvproof.model.arithmetic.system import Action, System
from kvproof.model.counting_abstraction.registry import TABLES, systems
from kvproof.proofs.solve import Answer, Query

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
    """Return the start and the actions of a system."""
    return tuple(
        InductionStep(system, n) for n in (START, *(a.name for a in systems()[system].actions))
    )


def sentence(system: System, claim: str) -> str:
    """Return a claim in words; P and D keep their capitals."""
    words = " ".join((system.invariants[claim].__doc__ or claim).split()).rstrip(".")
    about = f"{system.name} table" if system.name in TABLES else system.name
    first = words[:1] if words[1:2] in (" ", "'") else words[:1].lower()
    return f"{about}: {first}{words[1:]}"


@functools.cache
def claimed() -> dict[str, Claimed]:
    """Return all claims about all count-level systems, by id."""
    found = {}
    for system in systems().values():
        for claim in system.invariants:
            name = f"{system.name.replace(' ', '_')}.{claim}"
            found[name] = Claimed(name, sentence(system, claim), system.name, claim)
    return found


ALONE_UNITS = 10_000_000
"""The limit on Z3's work (`rlimit`, about one second here) for a proof of a claim without the other
claims: most steps do not need them, and are then settled sooner. The limit does not depend on the
load of the machine."""


class ClaimResult(NamedTuple):
    """The result of one claim after one step, and its CPU time in seconds."""

    step: InductionStep
    claim: str
    answer: Answer
    seconds: float


class StepQuestion:
    """The assumptions before a step, and the claims to check after it."""

    def __init__(self, step: InductionStep, without: frozenset[str]) -> None:
        self.step = step
        self.context = z3.Context()
        self.variables = {name: z3.Int(name, self.context) for name in step.variables}
        self.true = z3.BoolVal(True, self.context)
        before = step.alone(self.variables)
        self.possible = self.true == step.given(self.variables, without=frozenset(before))
        self.before = {n: self.true == b for n, b in before.items() if n not in without}

    def solver(self, claim: str, assumed: Iterable[str]) -> z3.Solver:
        """A solver that searches for a step that breaks the claim; these claims are assumed before
        it."""
        # Not z3.Solver: see `solve`.
        solver = z3.SimpleSolver(ctx=self.context)
        solver.set("random_seed", 0)
        # Without Groebner bases all steps together take two thirds of the time.
        solver.set("smt.arith.nl.grobner", False)
        solver.add(self.possible, *(self.before[name] for name in assumed))
        solver.add(self.true != self.step.holds(claim, self.variables))
        return solver

    def answer(self, claim: str, timeout_s: float) -> Answer:
        """Whether a step breaks the claim, in `timeout_s` seconds."""
        began = time.monotonic()
        itself = [name for name in self.before if name == claim]
        alone = self.solver(claim, itself)
        alone.set("rlimit", ALONE_UNITS)
        if Query(self.variables, alone).ask(began + timeout_s) == "unsat":
            return Answer("unsat", {}, "")
        query = Query(self.variables, self.solver(claim, self.before))
        return query.answer(began + timeout_s - time.monotonic())


def settle(
    step: InductionStep,
    claims: Sequence[str],
    timeout_s: float,
    *,
    without: frozenset[str] = frozenset(),
) -> list[ClaimResult]:
    """Check these claims after a step, and return the results, in at most `timeout_s` seconds each.
    All claims but those `without` are assumed before it."""
    try:
        question = StepQuestion(step, without)
    except (z3.Z3Exception, TypeError) as error:
        answer = Answer("unknown", {}, f"a rule does not run on Z3 terms: {error}")
        return [ClaimResult(step, claim, answer, 0.0) for claim in claims]
    found = []
    for claim in claims:
        began = time.process_time()
        answer = question.answer(claim, timeout_s)
        found.append(ClaimResult(step, claim, answer, time.process_time() - began))
    return found
