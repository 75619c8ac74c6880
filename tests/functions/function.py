"""A function of vLLM, the rule that it must follow, and their comparison."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kvproof.model.arithmetic.algebra import Num, Truth, any_of, both, not_
from kvproof.model.arithmetic.ranges import Range
from kvproof.model.faults.fault import Fault, planted
from kvproof.model.planting import planted_now
from tests.functions.case_targets import as_tuple
from tests.functions.cases import Cases, always, cases_of

_FOUND: dict[Hashable, Cases] = {}


@dataclass(frozen=True)
class Function:
    """One function of vLLM, and kvproof's rule for it.

    `rule` takes one keyword for each number, in the algebra. `driver` takes the same
    numbers as ints and calls vLLM. Both return a number, a truth value, or a tuple of these.
    `ranges`, `given` and `bound` describe the numbers that vLLM can get. `origin` is the name of
    the vLLM function. `differs` has the known findings that are visible in it, each with its
    condition on the numbers; where its mistake is not in `counts`, `results` has what vLLM computes
    with it. `dead` is the number of branches of the rule that these numbers never
    take. `also` are conditions, each of which a case meets too.
    """

    id: str
    origin: str
    rule: Callable[..., Any]
    ranges: Mapping[str, Range]
    driver: Callable[..., Any]
    given: Callable[..., Truth] = always
    bound: int = 8
    differs: Mapping[str, Callable[..., Truth]] = field(default_factory=dict)
    results: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    dead: int = 0
    also: tuple[Callable[..., Truth], ...] = ()

    def cases(self) -> Cases:
        """The cases of the function with the mistakes that are planted now, looked for once."""
        key = (self.id, frozenset(planted_now().items()))
        if key not in _FOUND:
            _FOUND[key] = self._cases()
        return _FOUND[key]

    def _cases(self) -> Cases:
        """Numbers for each branch and boundary of the rule and of the conditions of its known
        findings, then numbers for the rule where none of these conditions holds."""
        found = cases_of(self.rule, self.ranges, self.given, self.bound, self._covered)
        if not self.differs:
            return found
        outside = cases_of(self.rule, self.ranges, self._undisturbed, self.bound)
        known = [case.numbers for case in found.cases]
        more = [case for case in outside.cases if case.numbers not in known]
        return found._replace(
            cases=(*found.cases, *more), unsettled=(*found.unsettled, *outside.unsettled)
        )

    def _deviating(self, **numbers: Num) -> tuple[Truth, ...]:
        return tuple(shows(**numbers) for shows in self.differs.values())

    def _covered(self, **numbers: Num) -> tuple[Truth, ...]:
        return (*self._deviating(**numbers), *(meets(**numbers) for meets in self.also))

    def _undisturbed(self, **numbers: Num) -> Truth:
        return both(self.given(**numbers), not_(any_of(*self._deviating(**numbers))))

    def ours(self, numbers: Mapping[str, int]) -> tuple[int, ...]:
        """The result of the rule for these numbers."""
        return tuple(int(part) for part in as_tuple(self.rule(**numbers)))

    def ours_with(self, fault: Fault, numbers: Mapping[str, int]) -> tuple[int, ...]:
        """The result of the rule with a fault."""
        if fault.name in self.results:
            return tuple(int(part) for part in self.results[fault.name](**numbers))
        with planted(fault):
            return self.ours(numbers)

    def theirs(self, numbers: Mapping[str, int]) -> tuple[int, ...]:
        """The result of the installed vLLM for these numbers."""
        try:
            return tuple(int(part) for part in as_tuple(self.driver(**numbers)))
        except Exception as error:
            error.add_note(f"{self.origin} was called for {numbers}")
            raise


class Mismatch(NamedTuple):
    """Numbers for which vLLM's result differs from the rule's.

    `known` is the name of the known finding that explains the difference: its condition holds for
    these numbers, and its rule gives vLLM's result. It is empty where none explains it.
    """

    function: Function
    numbers: dict[str, int]
    ours: tuple[int, ...]
    theirs: tuple[int, ...]
    known: str

    def __str__(self) -> str:
        numbers = "; ".join(f"{name} = {value}" for name, value in self.numbers.items())
        return (
            f"{numbers}: the rule {self.function.id} says {_shown(self.ours)}, "
            f"{self.function.origin} computes {_shown(self.theirs)}"
        )


class FunctionComparison(NamedTuple):
    """The cases of a function, and the cases with different results."""

    function: Function
    cases: Cases
    differences: tuple[Mismatch, ...]

    @property
    def unexplained(self) -> list[Mismatch]:
        """The differences that no known finding explains."""
        return [d for d in self.differences if not d.known]

    @property
    def explained_by(self) -> set[str]:
        """The known findings that explain some difference."""
        return {d.known for d in self.differences if d.known}

    @property
    def complaints(self) -> list[str]:
        """All problems, as sentences: unexplained differences, known findings that are no longer
        visible, an unexpected number of dead branches, and cases that Z3 could not decide."""
        gone = [name for name in self.function.differs if name not in self.explained_by]
        found = [
            *map(str, self.unexplained),
            *(f"the known finding {name} is visible in no case" for name in gone),
            *(f"Z3 could not decide: {text}" for text in self.cases.unsettled),
        ]
        dead, expected = self.cases.dead, self.function.dead
        if len(dead) != expected:
            found.append(f"{len(dead)} branches are dead, expected {expected}: {'; '.join(dead)}")
        return found


def compare(function: Function, findings: Iterable[Fault]) -> FunctionComparison:
    """Call vLLM on each case. A known finding explains a difference only where the function lists
    it and its condition holds for the numbers."""
    faults = {fault.name: fault for fault in findings}
    cases = function.cases()
    differences = []
    for case in cases.cases:
        ours, theirs = function.ours(case.numbers), function.theirs(case.numbers)
        if ours != theirs:
            known = _explaining(function, case.numbers, theirs, faults)
            differences.append(Mismatch(function, case.numbers, ours, theirs, known))
    return FunctionComparison(function, cases, tuple(differences))


def _explaining(
    function: Function,
    numbers: Mapping[str, int],
    theirs: tuple[int, ...],
    faults: Mapping[str, Fault],
) -> str:
    """The name of the first known finding whose condition holds for these numbers and whose rule
    gives vLLM's result, or an empty string."""
    for name, shows in function.differs.items():
        if (
            name in faults
            and shows(**numbers)
            and function.ours_with(faults[name], numbers) == theirs
        ):
            return name
    return ""


def _shown(result: tuple[int, ...]) -> str:
    return str(result[0]) if len(result) == 1 else str(result)
