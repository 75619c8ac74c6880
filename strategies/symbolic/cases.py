"""Numbers that try a rule: every branch of its formula, and both sides of every boundary.

The rule runs on Z3 terms, and its term is walked. Each `if_` gives a condition, each comparison a
boundary, each division its remainders; each two inputs are as low as they may be, or higher. Z3
finds numbers for each of these, or says there are none.
Each rule is asked about in a Z3 context of its own, as in `solve`.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import z3

from kvproof.model.arithmetic.algebra import Truth, all_of
from kvproof.model.arithmetic.ranges import Range
from kvproof.model.errors import UsageError

SMALL = (2, 4, 8, 16, 32)
"""Numbers are looked for up to these, the smallest first."""

COMBINED_MAX = 6
"""Up to so many conditions are tried in all combinations; more of them alone and in pairs."""

EFFORT = 5_000_000
"""What Z3 may spend on one question, in its own units: a slow machine gets the same answers."""

DEPTH_MAX = 4
"""Levels of a term that a text shows."""

_COMPARISONS = (z3.Z3_OP_LE, z3.Z3_OP_LT, z3.Z3_OP_GE, z3.Z3_OP_GT, z3.Z3_OP_EQ)
_DISTANCES = {-1: "one below", 0: "equal", 1: "one above"}


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


class _Target(NamedTuple):
    text: str
    holds: Any
    branch: bool = False


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
    search = _Search(rule, ranges, given, bound, also)
    for target in search.targets():
        search.settle(target)
    cases = tuple(Case(n, tuple(c)) for n, c in zip(search.found, search.covers, strict=True))
    dead = tuple(target.text for target in search.unreachable if target.branch)
    unreachable = tuple(target.text for target in search.unreachable)
    return Cases(cases, dead, unreachable, tuple(search.unsettled))


def as_tuple(result: Any) -> tuple[Any, ...]:
    """What a rule returns as a tuple."""
    return result if isinstance(result, tuple) else (result,)


class _Search:
    """The targets of one rule, and the numbers found so far."""

    def __init__(
        self,
        rule: Callable[..., Any],
        ranges: Mapping[str, Range],
        given: Callable[..., Truth],
        bound: int | None,
        also: Callable[..., Any],
    ) -> None:
        self.rule, self.ranges = rule, ranges
        self.context = z3.Context()
        self.variables = {name: z3.Int(name, self.context) for name in ranges}
        try:
            self.result = as_tuple(rule(**self.variables))
            beside = as_tuple(also(**self.variables))
            assumed = given(**self.variables)
        except (z3.Z3Exception, TypeError) as error:
            raise UsageError(
                f"The rule does not run on Z3 terms: {error}. "
                "Write it with the functions of kvproof.model.arithmetic.algebra."
            ) from error
        inside = [r.has(self.variables[name]) for name, r in ranges.items()]
        limits = [] if bound is None else [v <= bound for v in self.variables.values()]
        self.allowed = all_of(z3.BoolVal(True, self.context), *inside, *limits, assumed)
        self.terms = [part for part in self.result if z3.is_expr(part)]
        self.walked = [*self.terms, *(part for part in beside if z3.is_expr(part))]
        self.nodes = list(_nodes(self.walked))
        self.found: list[dict[str, int]] = []
        self.covers: list[list[str]] = []
        self.unreachable: list[_Target] = []
        self.unsettled: list[str] = []

    def targets(self) -> Iterator[_Target]:
        """All that is to be covered; first of all, that there are allowed numbers."""
        yield _Target("allowed numbers", z3.BoolVal(True, self.context))
        yield from self._combinations()
        for node in self.nodes:
            if _is_comparison(node):
                yield from self._boundary(node)
            elif z3.is_app_of(node, z3.Z3_OP_IDIV):
                yield from self._remainders(node)
        yield from self._inputs()

    def _inputs(self) -> Iterator[_Target]:
        """Each two inputs at the lowest of their ranges, or above it; each one further above."""
        sides = [
            (
                _Target(f"{name} is {r.lowest}", self.variables[name] == r.lowest),
                _Target(f"{name} is above {r.lowest}", self.variables[name] > r.lowest),
            )
            for name, r in self.ranges.items()
        ]
        yield from _together(sides, 2)
        for name, r in self.ranges.items():
            if r.highest is None or r.highest > r.lowest + 1:
                beyond = self.variables[name] > r.lowest + 1
                yield _Target(f"{name} is above {r.lowest + 1}", beyond)

    def _combinations(self) -> Iterator[_Target]:
        """The conditions true and false: all together where they are few."""
        conditions = _different(
            [n.arg(0) for n in self.nodes if z3.is_app_of(n, z3.Z3_OP_ITE)]
            + [term for term in self.walked if z3.is_bool(term)]
        )
        literals = [
            (
                _Target(f"condition {number} is true", condition),
                _Target(f"condition {number} is false", z3.Not(condition)),
            )
            for number, condition in enumerate(conditions, 1)
        ]
        for condition, sides in zip(conditions, literals, strict=True):
            for side in sides:
                yield _Target(f"{side.text}: {_text(condition)}", side.holds, branch=True)
        size = len(conditions) if len(conditions) <= COMBINED_MAX else 2
        if size > 1:
            yield from _together(literals, size)

    def _boundary(self, comparison: Any) -> Iterator[_Target]:
        """Both sides of a comparison, anywhere and where its answer decides the result."""
        left, right = comparison.arg(0), comparison.arg(1)
        decides = self._changed(comparison, z3.Not(comparison))
        for distance, word in _DISTANCES.items():
            at = left == right + distance
            text = f"{_text(left)} against {_text(right)}: {word}"
            yield _Target(text, at)
            yield _Target(f"{text}, where that decides", z3.And(at, decides))

    def _remainders(self, division: Any) -> Iterator[_Target]:
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
            yield _Target(text, at)
            for way, changes in decides:
                yield _Target(f"{text}, where one {way} decides", z3.And(at, changes))

    def _changed(self, node: Any, other: Any) -> Any:
        """Whether the result is another one with this node replaced."""
        return z3.Or(*(term != z3.substitute(term, (node, other)) for term in self.terms))

    def settle(self, target: _Target) -> None:
        """Find numbers for a target, unless some of those found cover it."""
        for numbers, covers in zip(self.found, self.covers, strict=True):
            if z3.is_true(self._at(target.holds, numbers)):
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

    def _nowhere(self, target: _Target) -> None:
        if not self.found:
            raise UsageError(
                "No numbers are in their ranges and meet the assumption. "
                "Write wider ranges, a higher bound, or a weaker assumption."
            )
        self.unreachable.append(target)

    def _ask(self, target: _Target, *limits: Any) -> tuple[str, dict[str, int]]:
        solver = z3.Solver(ctx=self.context)
        solver.set("random_seed", 0)
        solver.set("rlimit", EFFORT)
        answer = str(solver.check(self.allowed, target.holds, *limits))
        if answer != "sat":
            return answer, {}
        model = solver.model()
        return answer, {
            name: model.eval(variable, model_completion=True).as_long()
            for name, variable in self.variables.items()
        }

    def _small(self, target: _Target) -> dict[str, int]:
        """Numbers up to one of the steps of `SMALL`; none where there are none."""
        for limit in SMALL:
            numbers = self._ask(target, *(v <= limit for v in self.variables.values()))[1]
            if numbers:
                return numbers
        return {}

    def _at(self, term: Any, numbers: Mapping[str, int]) -> Any:
        """The term with these numbers for its variables."""
        pairs = [(v, z3.IntVal(numbers[n], self.context)) for n, v in self.variables.items()]
        return z3.simplify(z3.substitute(term, *pairs))

    def _check(self, numbers: dict[str, int]) -> None:
        """Plain ints must give what the Z3 term gives: it is the same formula."""
        plain = as_tuple(self.rule(**numbers))
        for ours, part in zip(plain, self.result, strict=True):
            same = self._at(part == ours, numbers) if z3.is_expr(part) else part == ours
            if not (same is True or z3.is_true(same)):
                raise UsageError(
                    f"The rule gives {plain} for {numbers}, and another result on Z3 terms. "
                    "Write it with the functions of kvproof.model.arithmetic.algebra."
                )


def _together(sides: list[tuple[_Target, _Target]], size: int) -> Iterator[_Target]:
    """Each so many of these pairs, with one of each pair, in every way."""
    for chosen in itertools.combinations(sides, size):
        for parts in itertools.product(*chosen):
            text = " and ".join(part.text for part in parts)
            yield _Target(text, z3.And(*(part.holds for part in parts)))


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
