"""What the cases of a rule are to cover: the branches, boundaries and remainders of its Z3 term."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import z3

from kvproof.model.arithmetic.algebra import Truth, all_of
from kvproof.model.arithmetic.ranges import Range
from kvproof.model.errors import UsageError

COMBINED_MAX = 6
"""Up to so many conditions are tried in all combinations; more of them alone and in pairs."""

DEPTH_MAX = 4
"""Levels of a term that a text shows."""

_COMPARISONS = (z3.Z3_OP_LE, z3.Z3_OP_LT, z3.Z3_OP_GE, z3.Z3_OP_GT, z3.Z3_OP_EQ)
_DISTANCES = {-1: "one below", 0: "equal", 1: "one above"}


class CaseTarget(NamedTuple):
    """Something to cover: numbers do for which `holds` is true. `branch` where it is one side of
    one condition."""

    text: str
    holds: Any
    branch: bool = False


def as_tuple(result: Any) -> tuple[Any, ...]:
    """What a rule returns as a tuple."""
    return result if isinstance(result, tuple) else (result,)


class Formula:
    """A rule as Z3 terms, one variable for each input, in a Z3 context of its own. `allowed` says
    which numbers may be used. Raises UsageError where the rule does not run on Z3 terms."""

    def __init__(
        self,
        rule: Callable[..., Any],
        ranges: Mapping[str, Range],
        given: Callable[..., Truth],
        bound: int | None,
        also: Callable[..., Any],
    ) -> None:
        self.ranges = ranges
        self.context = z3.Context()
        self.variables = {name: z3.Int(name, self.context) for name in ranges}
        try:
            self.result = as_tuple(rule(**self.variables))
            beside = as_tuple(also(**self.variables))
            assumed = given(**self.variables)
        except (z3.Z3Exception, TypeError) as error:
            raise UsageError(
                f"The rule does not run on Z3 terms: {error}. "
                "Use the functions of kvproof.model.arithmetic.algebra."
            ) from error
        inside = [r.has(self.variables[name]) for name, r in ranges.items()]
        limits = [] if bound is None else [v <= bound for v in self.variables.values()]
        self.allowed = all_of(z3.BoolVal(True, self.context), *inside, *limits, assumed)
        self.terms = [part for part in self.result if z3.is_expr(part)]
        self.walked = [*self.terms, *(part for part in beside if z3.is_expr(part))]
        self.nodes = list(_nodes(self.walked))

    def at(self, term: Any, numbers: Mapping[str, int]) -> Any:
        """The term with these numbers for its variables."""
        pairs = [(v, z3.IntVal(numbers[n], self.context)) for n, v in self.variables.items()]
        return z3.simplify(z3.substitute(term, *pairs))

    def targets(self) -> Iterator[CaseTarget]:
        """All that is to be covered; first of all, that there are allowed numbers."""
        yield CaseTarget("allowed numbers", z3.BoolVal(True, self.context))
        yield from self._combinations()
        for node in self.nodes:
            if _is_comparison(node):
                yield from self._boundary(node)
            elif z3.is_app_of(node, z3.Z3_OP_IDIV):
                yield from self._remainders(node)
        yield from self._inputs()

    def _inputs(self) -> Iterator[CaseTarget]:
        """Each two inputs at the lowest of their ranges, or above it; each one further above."""
        sides = [
            (
                CaseTarget(f"{name} is {r.lowest}", self.variables[name] == r.lowest),
                CaseTarget(f"{name} is above {r.lowest}", self.variables[name] > r.lowest),
            )
            for name, r in self.ranges.items()
        ]
        yield from _together(sides, 2)
        for name, r in self.ranges.items():
            if r.highest is None or r.highest > r.lowest + 1:
                beyond = self.variables[name] > r.lowest + 1
                yield CaseTarget(f"{name} is above {r.lowest + 1}", beyond)

    def _combinations(self) -> Iterator[CaseTarget]:
        """The conditions true and false: all together where they are few."""
        conditions = _different(
            [n.arg(0) for n in self.nodes if z3.is_app_of(n, z3.Z3_OP_ITE)]
            + [term for term in self.walked if z3.is_bool(term)]
        )
        literals = [
            (
                CaseTarget(f"condition {number} is true", condition),
                CaseTarget(f"condition {number} is false", z3.Not(condition)),
            )
            for number, condition in enumerate(conditions, 1)
        ]
        for condition, sides in zip(conditions, literals, strict=True):
            for side in sides:
                yield CaseTarget(f"{side.text}: {_text(condition)}", side.holds, branch=True)
        size = len(conditions) if len(conditions) <= COMBINED_MAX else 2
        if size > 1:
            yield from _together(literals, size)

    def _boundary(self, comparison: Any) -> Iterator[CaseTarget]:
        """Both sides of a comparison, anywhere and where its answer decides the result."""
        left, right = comparison.arg(0), comparison.arg(1)
        decides = self._changed(comparison, z3.Not(comparison))
        for distance, word in _DISTANCES.items():
            at = left == right + distance
            text = f"{_text(left)} against {_text(right)}: {word}"
            yield CaseTarget(text, at)
            yield CaseTarget(f"{text}, where that decides", z3.And(at, decides))

    def _remainders(self, division: Any) -> Iterator[CaseTarget]:
        """A division that leaves nothing, one, and all but one; anywhere, and where one more or
        one less than it changes the result."""
        left, right = division.arg(0), division.arg(1)
        rest = left - division * right
        decides = [
            ("more", self._changed(division, division + 1)),
            ("less", self._changed(division, division - 1)),
        ]
        for value, word in ((0, "nothing"), (1, "one"), (right - 1, "all but one")):
            at = z3.And(right > 1, rest == value)
            text = f"{_text(left)} by {_text(right)} leaves {word}"
            yield CaseTarget(text, at)
            for way, changes in decides:
                yield CaseTarget(f"{text}, where one {way} decides", z3.And(at, changes))

    def _changed(self, node: Any, other: Any) -> Any:
        """Whether the result is another one with this node replaced."""
        return z3.Or(*(term != z3.substitute(term, (node, other)) for term in self.terms))


def _together(sides: list[tuple[CaseTarget, CaseTarget]], size: int) -> Iterator[CaseTarget]:
    """Each so many of these pairs, with one of each pair, in every way."""
    for chosen in itertools.combinations(sides, size):
        for parts in itertools.product(*chosen):
            text = " and ".join(part.text for part in parts)
            yield CaseTarget(text, z3.And(*(part.holds for part in parts)))


def _nodes(terms: list[Any]) -> Iterator[Any]:
    """All parts of the terms, each once, those inside first."""
    seen: set[int] = set()

    def inside(term: Any) -> Iterator[Any]:
        if term.get_id() in seen:
            return
        seen.add(term.get_id())
        for child in term.children():
            yield from inside(child)
        yield term

    for term in terms:
        yield from inside(term)


def _different(terms: list[Any]) -> list[Any]:
    return list({term.get_id(): term for term in terms}.values())


def _is_comparison(node: Any) -> bool:
    return any(z3.is_app_of(node, kind) for kind in _COMPARISONS) and z3.is_int(node.arg(0))


def _text(term: Any, depth: int = DEPTH_MAX) -> str:
    """The term as a reader writes it, without its deepest parts."""
    if term.num_args() == 0:
        return str(term)
    if depth == 0:
        return "..."
    name, parts = term.decl().name(), [_text(part, depth - 1) for part in term.children()]
    if len(parts) == 2 and not name.isalpha():
        text = f" {name} ".join(parts)
        return text if depth == DEPTH_MAX else f"({text})"
    return f"{name}({', '.join(parts)})"
