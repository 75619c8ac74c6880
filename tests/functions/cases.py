"""Numbers that try a rule: every branch of its formula, and both sides of every boundary.

The rule runs on Z3 terms, and its term is walked. Each `if_` gives a condition, each comparison a
boundary, each division its remainders; each two inputs are as low as they may be, or higher. Z3
finds numbers for each of these, or says there are none.
Each rule is asked about in a Z3 context of its own, as in `solve`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import z3

from kvproof.model.arithmetic.algebra import Truth
from kvproof.model.arithmetic.ranges import Range
from kvproof.model.errors import UsageError
from tests.functions.case_targets import CaseTarget, Formula, as_tuple

SMALL = (2, 4, 8, 16, 32)
"""Numbers are looked for up to these, the smallest first."""

EFFORT = 5_000_000
"""What Z3 may spend on one question, in its own units: a slow machine gets the same answers."""


class Case(NamedTuple):
    """Numbers for the inputs of a rule, and what they are the first to cover."""

    numbers: dict[str, int]
    covers: tuple[str, ...]


class Cases(NamedTuple):
    """The cases of a rule.

    `unreachable` is what no allowed numbers cover, by Z3's word; `dead` are the single branches
    among it. `unsettled` is what Z3 gave up on: it is covered by no case, and may be reachable.
    """

    cases: tuple[Case, ...]
    dead: tuple[str, ...]
    unreachable: tuple[str, ...]
    unsettled: tuple[str, ...]


def always(**_numbers: Any) -> Truth:
    """No assumption."""
    return True


def nothing(**_numbers: Any) -> tuple[Any, ...]:
    """No formula."""
    return ()


def cases_of(
    rule: Callable[..., Any],
    ranges: Mapping[str, Range],
    given: Callable[..., Truth] = always,
    bound: int | None = None,
    also: Callable[..., Any] = nothing,
) -> Cases:
    """Cases for a rule `(one keyword argument for each input) -> number, truth, or tuple of them`.

    Only numbers in their ranges that make `given` true are used, none of them above `bound`. `also`
    is a formula whose branches and boundaries are covered too. The same rule gives the same cases
    in every process. Raises UsageError where the rule does not run on Z3 terms, where plain ints
    give something else, and where no numbers are allowed.
    """
    formula = Formula(rule, ranges, given, bound, also)
    search = _Search(rule, formula)
    for target in formula.targets():
        search.settle(target)
    cases = tuple(Case(n, tuple(c)) for n, c in zip(search.found, search.covers, strict=True))
    dead = tuple(target.text for target in search.unreachable if target.branch)
    unreachable = tuple(target.text for target in search.unreachable)
    return Cases(cases, dead, unreachable, tuple(search.unsettled))


class _Search:
    """The numbers found so far for the targets of one rule."""

    def __init__(self, rule: Callable[..., Any], formula: Formula) -> None:
        self.rule, self.formula = rule, formula
        self.found: list[dict[str, int]] = []
        self.covers: list[list[str]] = []
        self.unreachable: list[CaseTarget] = []
        self.unsettled: list[str] = []

    def settle(self, target: CaseTarget) -> None:
        """Find numbers for a target, unless some of those found cover it."""
        for numbers, covers in zip(self.found, self.covers, strict=True):
            if z3.is_true(self.formula.at(target.holds, numbers)):
                covers.append(target.text)
                return
        answer, anyhow = self._ask(target)
        if answer == "unsat":
            self._nowhere(target)
            return
        numbers = self._small(target) or anyhow
        if not numbers:
            self.unsettled.append(target.text)
            return
        self._check(numbers)
        self.found.append(numbers)
        self.covers.append([target.text])

    def _nowhere(self, target: CaseTarget) -> None:
        if not self.found:
            raise UsageError(
                "No numbers are in their ranges and meet the assumption. "
                "Use wider ranges, a higher bound, or a weaker assumption."
            )
        self.unreachable.append(target)

    def _ask(self, target: CaseTarget, *limits: Any) -> tuple[str, dict[str, int]]:
        solver = z3.Solver(ctx=self.formula.context)
        solver.set("random_seed", 0)
        solver.set("rlimit", EFFORT)
        answer = str(solver.check(self.formula.allowed, target.holds, *limits))
        if answer != "sat":
            return answer, {}
        model = solver.model()
        return answer, {
            name: model.eval(variable, model_completion=True).as_long()
            for name, variable in self.formula.variables.items()
        }

    def _small(self, target: CaseTarget) -> dict[str, int]:
        """Numbers up to one of the steps of `SMALL`; none where there are none."""
        for limit in SMALL:
            numbers = self._ask(target, *(v <= limit for v in self.formula.variables.values()))[1]
            if numbers:
                return numbers
        return {}

    def _check(self, numbers: dict[str, int]) -> None:
        """Plain ints must give what the Z3 term gives: it is the same formula."""
        plain = as_tuple(self.rule(**numbers))
        for ours, part in zip(plain, self.formula.result, strict=True):
            same = self.formula.at(part == ours, numbers) if z3.is_expr(part) else part == ours
            if not (same is True or z3.is_true(same)):
                raise UsageError(
                    f"The rule gives {plain} for {numbers}, and another result on Z3 terms. "
                    "Use the functions of kvproof.model.arithmetic.algebra."
                )
