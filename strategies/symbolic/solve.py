"""One obligation given to Z3: are there numbers that break it?

Each is asked in a context of its own, which is gone afterwards. Z3 5.4 answers otherwise where a
second context is alive: two of the obligations then run into the time limit, whatever the seed. So
nothing here makes Z3's main context, which stays.

`z3.Solver()` tries one method after another, each for seconds on the clock, so that a busy machine
answers otherwise. Here the method is said.
"""

import time
from typing import Any, NamedTuple

import z3

from kvproof.model.reference.rules import Rules
from kvproof.strategies.symbolic.obligation import Obligation

TIMEOUT_S = 60.0
"""Seconds on the clock for one question, unless another limit is given. Each takes less than one on
an idle machine; a busy one must not make UNKNOWN of what can be proved."""

SMALL = (2, 4, 8, 16, 32)
"""A counterexample is looked for with all variables up to these, the smallest first."""


PLAIN_UNITS = 200_000
"""Units of Z3's work (`rlimit`, here a tenth of a second or three) that a plain search may take."""


def _drawn_out(context: z3.Context) -> z3.Solver:
    """A solver that draws conditions inside terms out first: with them some searches do not end."""
    bounded = z3.With(z3.Tactic("ctx-simplify", context), max_depth=30, max_steps=5_000_000)
    drawn = z3.With(z3.Tactic("simplify", context), pull_cheap_ite=True, local_ctx=True)
    named = ("elim-uncnstr", "lia2card", "card2bv", "cofactor-term-ite", "smt")
    rest = (z3.Tactic(name, context) for name in named)
    first = (z3.Tactic(name, context) for name in ("simplify", "propagate-values"))
    return z3.Then(*first, bounded, drawn, *rest, ctx=context).solver()


def _plain(context: z3.Context) -> z3.Solver:
    solver = z3.SimpleSolver(ctx=context)
    solver.set("rlimit", PLAIN_UNITS)
    return solver


class Answer(NamedTuple):
    """What Z3 said: `unsat` (nothing breaks the claim), `sat` with the numbers that do, or
    `unknown` with a reason."""

    result: str
    numbers: dict[str, int]
    reason: str


class Question:
    """The claim of an obligation as a search for numbers that break it."""

    def __init__(self, obligation: Obligation, rules: Rules) -> None:
        context = z3.Context()
        self.variables = {name: z3.Int(name, context) for name in obligation.for_all}
        claim = obligation.on(rules, self.variables)
        self.solvers = (_plain(context), _drawn_out(context))
        self.solver = self.solvers[0]
        for solver in self.solvers:
            solver.add(claim.given)
            solver.add(z3.Not(z3.BoolVal(True, context) == claim.holds))

    def ask(self, deadline: float, *extra: Any) -> str:
        """Z3's answer with these assumptions added, in the time left until the deadline
        (`time.monotonic`)."""
        for solver in self.solvers:
            self.solver = solver
            left_ms = int((deadline - time.monotonic()) * 1000)
            if left_ms <= 0:
                break
            solver.set("timeout", left_ms)
            result = str(solver.check(*extra))
            if result != "unknown":
                return result
        return "unknown"

    def numbers(self) -> dict[str, int]:
        """The numbers of the last `sat` answer."""
        model = self.solver.model()
        return {
            name: model.eval(variable, model_completion=True).as_long()
            for name, variable in self.variables.items()
        }

    def small_numbers(self, deadline: float) -> dict[str, int]:
        """Numbers that break the claim, as small as the steps of `SMALL`; empty if none were
        found."""
        for limit in SMALL:
            if self.ask(deadline, *(v <= limit for v in self.variables.values())) == "sat":
                return self.numbers()
        return {}


def solve(obligation: Obligation, rules: Rules, timeout_s: float) -> Answer:
    """Look for numbers that break the obligation, in `timeout_s` seconds: half of them for all
    numbers, the rest for small ones. The limits of `SMALL` only make a counterexample readable, or
    find one where Z3 gives up: `unsat` is said of all numbers or not at all."""
    began = time.monotonic()
    try:
        question = Question(obligation, rules)
    except (z3.Z3Exception, TypeError) as error:
        return Answer("unknown", {}, f"a rule does not run on Z3 terms: {error}")
    result = question.ask(began + timeout_s / 2)
    if result == "unsat":
        return Answer("unsat", {}, "")
    anyhow = question.numbers() if result == "sat" else {}
    why = question.solver.reason_unknown() or "no time left"
    numbers = question.small_numbers(began + timeout_s) or anyhow
    if numbers:
        return Answer("sat", numbers, "")
    return Answer("unknown", {}, f"Z3 gave up: {why}")
