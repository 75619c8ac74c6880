"""A function of vLLM, the rule that it must follow, and their comparison."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from kvproof.model.arithmetic.ranges import Range
from kvproof.model.faults.fault import Fault, planted
from tests.functions.cases import Numbers, always, cases_of, of_name


def as_tuple(result: Any) -> tuple[Any, ...]:
    """What a rule returns as a tuple."""
    return result if isinstance(result, tuple) else (result,)


@dataclass(frozen=True)
class Function:
    """One function of vLLM, and kvproof's rule for it.

    `rule` takes one keyword for each number. `driver` takes the same
    numbers as ints and calls vLLM. Both return a number, a truth value, or a tuple of these.
    `given`, `bound` and `ranges` describe the numbers that vLLM can get; a number that is not in
    `ranges` has the range of its name. `origin` is the name of
    the vLLM function. `differs` has the known findings that are visible in it, each with its
    condition on the numbers; where its mistake is not in `counts`, `results` has what vLLM computes
    with it. `also` are conditions, each of which some cases meet.
    """

    id: str
    origin: str
    rule: Callable[..., Any]
    driver: Callable[..., Any]
    given: Callable[..., bool] = always
    bound: int = 8
    ranges: Mapping[str, Range] = field(default_factory=dict)
    differs: Mapping[str, Callable[..., bool]] = field(default_factory=dict)
    results: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    also: tuple[Callable[..., bool], ...] = ()

    @cached_property
    def cases(self) -> list[Numbers]:
        """Numbers on which vLLM is called, some for each condition."""
        names = inspect.signature(self.driver).parameters
        ranges = {name: self.ranges.get(name, of_name(name)) for name in names}
        return cases_of(ranges, self.bound, self.given, (*self.differs.values(), *self.also))

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
    cases: list[Numbers]
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
        """All problems, as sentences: unexplained differences, and known findings that are no
        longer visible."""
        gone = [name for name in self.function.differs if name not in self.explained_by]
        return [
            *map(str, self.unexplained),
            *(f"the known finding {name} is visible in no case" for name in gone),
        ]


def compare(function: Function, findings: Iterable[Fault]) -> FunctionComparison:
    """Call vLLM on each case. A known finding explains a difference only where the function lists
    it and its condition holds for the numbers."""
    faults = {fault.name: fault for fault in findings}
    differences = []
    for numbers in function.cases:
        ours, theirs = function.ours(numbers), function.theirs(numbers)
        if ours != theirs:
            known = _explaining(function, numbers, theirs, faults)
            differences.append(Mismatch(function, numbers, ours, theirs, known))
    return FunctionComparison(function, function.cases, tuple(differences))


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
