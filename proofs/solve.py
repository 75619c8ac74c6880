"""This module asks Z3: are there numbers that break an obligation?

Each query has its own context, which is deleted afterwards. Z3 5.4 gives other answers while a
second context exists: two of the obligations then reach the time limit, with every seed. So no code
here creates Z3's main context, which would exist until the end of the process.

`z3.Solver()` tries one method after another, each with a limit in wall time, so its answer depends
on the load of the machine. The solvers here use fixed methods.

A query can be interrupted by the user. Z3 has a handler of its own for Ctrl-C, which would make the
interruption an answer, "unknown"; it is switched off for each solver. While Z3 runs, Python runs no
handler in the thread that called it: so the query runs in a thread of its own, and the main thread
waits for it.
"""

import threading
import time
from typing import Any, NamedTuple

import z3

from kvproof.model import interruption
from kvproof.proofs.obligation import Obligation

OWN_HANDLER = "ctrl_c"

INTERRUPTED_EVERY_S = 0.05
"""The time between two interruptions of a query, in seconds: it may not have begun at the first."""


def checked(solver: z3.Solver, *assumptions: Any) -> str:
    """Return the answer of a solver: sat, unsat or unknown. Raises KeyboardInterrupt."""
    solver.set(OWN_HANDLER, False)
    answers: list[str] = []
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            answers.append(str(solver.check(*assumptions)))
        except BaseException as error:
            failed.append(error)

    query = threading.Thread(target=ask, daemon=True)
    query.start()
    try:
        query.join()
    except KeyboardInterrupt:
        with interruption.held():
            while query.is_alive():
                solver.ctx.interrupt()
                query.join(INTERRUPTED_EVERY_S)
        raise
    if failed:
        raise failed[0]
    return answers[0]


TIMEOUT_S = 60.0
"""The default time limit of one query, in seconds of wall time. Each query takes less than one
second on an idle machine; the limit is high so that a busy machine does not turn PROVED into
UNKNOWN."""

SMALL = (2, 4, 8, 16, 32)
"""Limits on all variables in the search for a small counterexample, tried in this order."""


PLAIN_UNITS = 200_000
"""The limit on Z3's work (`rlimit`, here 0.1 s to 0.3 s) for the plain search."""


def _conditions_moved_out(context: z3.Context) -> z3.Solver:
    """Make a solver that first moves conditions out of terms: with conditions inside terms some
    searches do not end."""
    bounded = z3.With(z3.Tactic("ctx-simplify", context), max_depth=30, max_steps=5_000_000)
    moved = z3.With(z3.Tactic("simplify", context), pull_cheap_ite=True, local_ctx=True)
    named = ("elim-uncnstr", "lia2card", "card2bv", "cofactor-term-ite", "smt")
    rest = (z3.Tactic(name, context) for name in named)
    first = (z3.Tactic(name, context) for name in ("simplify", "propagate-values"))
    return z3.Then(*first, bounded, moved, *rest, ctx=context).solver()


def _plain(context: z3.Context) -> z3.Solver:
    solver = z3.SimpleSolver(ctx=context)
    solver.set("rlimit", PLAIN_UNITS)
    return solver


class Answer(NamedTuple):
    """Z3's answer: `unsat` (no numbers break the claim), `sat` with numbers that break it, or
    `unknown` with a reason."""

    result: str
    numbers: dict[str, int]
    reason: str


class Query:
    """A search for numbers that meet all that its solvers were given. The solvers have the same
    question and are asked one after the other."""

    def __init__(self, variables: dict[str, Any], *solvers: z3.Solver) -> None:
        self.variables, self.solvers = variables, solvers
        self.solver = solvers[0]

    def ask(self, deadline: float, *extra: Any) -> str:
        """Z3's answer with these assumptions added, in the time left until the deadline
        (`time.monotonic`)."""
        for solver in self.solvers:
            self.solver = solver
            left_ms = int((deadline - time.monotonic()) * 1000)
            if left_ms <= 0:
                break
            solver.set("timeout", left_ms)
            result = checked(solver, *extra)
            if result != "unknown":
                return result
        return "unknown"

    def answer(self, timeout_s: float) -> Answer:
        """The answer in `timeout_s` seconds: half of the time among all numbers, the rest among
        small ones. The limits of `SMALL` make a counterexample readable, or find one where Z3 gives
        up; the answer `unsat` is always about all numbers."""
        began = time.monotonic()
        result = self.ask(began + timeout_s / 2)
        if result == "unsat":
            return Answer("unsat", {}, "")
        numbers = self._numbers() if result == "sat" else {}
        why = self.solver.reason_unknown() or "no time left"
        for limit in SMALL:
            few = (variable <= limit for variable in self.variables.values())
            if self.ask(began + timeout_s, *few) == "sat":
                numbers = self._numbers()
                break
        if numbers:
            return Answer("sat", numbers, "")
        return Answer("unknown", {}, f"Z3 gave up: {why}")

    def _numbers(self) -> dict[str, int]:
        """The numbers of the last `sat` answer."""
        model = self.solver.model()
        return {
            name: model.eval(variable, model_completion=True).as_long()
            for name, variable in self.variables.items()
        }


def claim_query(obligation: Obligation) -> Query:
    """Make the claim of an obligation a search for numbers that break it."""
    context = z3.Context()
    variables = {name: z3.Int(name, context) for name in obligation.for_all}
    claim = obligation.on(variables)
    solvers = (_plain(context), _conditions_moved_out(context))
    for solver in solvers:
        solver.add(claim.given)
        solver.add(z3.Not(z3.BoolVal(True, context) == claim.holds))
    return Query(variables, *solvers)


def solve(obligation: Obligation, timeout_s: float) -> Answer:
    """Search for numbers that break the obligation, for `timeout_s` seconds."""
    try:
        query = claim_query(obligation)
    except (z3.Z3Exception, TypeError) as error:
        return Answer("unknown", {}, f"a rule does not run on Z3 terms: {error}")
    return query.answer(timeout_s)
