"""The steps of an induction as queries to Z3: is there a step that breaks a claim although all
claims hold before it?

The assumptions of a step are built once, in their own Z3 context (see `solve`); each claim gets a
fresh solver.
"""

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import z3

from kvproof.proofs.induction import InductionStep
from kvproof.proofs.solve import Answer, Query

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
    """The results of these claims after a step, in at most `timeout_s` seconds each. All claims but
    those `without` are assumed before it."""
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
