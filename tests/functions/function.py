"""A function of vLLM, the rule that it must follow, and their comparison."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kvproof.model.arithmetic.ranges import Range, at_least, between
from kvproof.model.faults.fault import Fault, planted

Numbers = dict[str, int]

EXAMPLES = 120

SIZES = frozenset(
    (
        *("window", "block_size", "units", "local_ratio", "remote_ratio", "ratio"),
        *("prompt", "known", "tokens", "end"),
    )
)
"""The numbers that are 1 or more; others are 0 or more."""

FLAGS = frozenset(("idle", "backoff", "embeds", "resumed"))
"""Those that are 0 or 1."""


def of_name(name: str) -> Range:
    """The range of the number of this name."""
    return between(0, 1) if name in FLAGS else at_least(int(name in SIZES))


def always(**_numbers: Any) -> bool:
    """No assumption."""
    return True


def as_ints(result: Any) -> tuple[int, ...]:
    """What a rule or a driver returns, as numbers."""
    return tuple(int(part) for part in (result if isinstance(result, tuple) else (result,)))


@dataclass(frozen=True)
class Function:
    """One function of vLLM, and kvproof's rule for it.

    `rule` takes one keyword for each number. `driver` takes the same
    numbers as ints and calls vLLM. Both return a number, a truth value, or a tuple of these.
    `given`, `bound` and `ranges` describe the numbers that vLLM can get; a number that is not in
    `ranges` has the range of its name. `origin` is the name of
    the vLLM function. `differs` has the known findings that are visible in it, each with its
    condition on the numbers; where its mistake is not in `counts`, `results` has what vLLM computes
    with it. `also` are numbers that are rarely drawn.
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
    also: tuple[Numbers, ...] = ()

    def numbers(self) -> st.SearchStrategy[Numbers]:
        """Numbers that vLLM can get, each at most `bound` above the lowest of its range. Half of
        them are small, because boundaries are close together. A known finding shows in many."""
        ranges = {
            name: self.ranges.get(name, of_name(name))
            for name in inspect.signature(self.driver).parameters
        }

        def within(above: int) -> st.SearchStrategy[Numbers]:
            return st.fixed_dictionaries({n: _drawn(each, above) for n, each in ranges.items()})

        both = within(min(self.bound, 3)) | within(self.bound)
        possible = both.filter(lambda numbers: self.given(**numbers))
        showing = (
            possible.filter(lambda n, shows=each: shows(**n)) for each in self.differs.values()
        )
        return st.one_of(possible, *showing)

    def ours_with(self, fault: Fault, numbers: Numbers) -> tuple[int, ...]:
        """The result of the rule with a fault."""
        if fault.name in self.results:
            return as_ints(self.results[fault.name](**numbers))
        with planted(fault):
            return as_ints(self.rule(**numbers))


def _drawn(within: Range, above: int) -> st.SearchStrategy[int]:
    highest = within.lowest + above
    return st.integers(
        within.lowest, highest if within.highest is None else min(highest, within.highest)
    )


@dataclass
class Compared:
    """What a comparison found: differences that nothing explains, as sentences, and the known
    findings that explain some."""

    unexplained: list[str] = field(default_factory=list)
    explained_by: set[str] = field(default_factory=set)


def compare(function: Function, findings: Iterable[Fault]) -> Compared:
    """Call vLLM on numbers that Hypothesis draws. A known finding explains a difference only where
    the function lists it, its condition holds for the numbers, and its rule gives vLLM's result."""
    faults = {fault.name: fault for fault in findings}
    found = Compared()

    @settings(max_examples=EXAMPLES, phases=[Phase.generate], suppress_health_check=HealthCheck)
    @given(numbers=function.numbers())
    def one(numbers: Numbers) -> None:
        ours, theirs = as_ints(function.rule(**numbers)), as_ints(function.driver(**numbers))
        if ours == theirs:
            return
        explaining = (
            name
            for name, shows in function.differs.items()
            if name in faults
            and shows(**numbers)
            and function.ours_with(faults[name], numbers) == theirs
        )
        if (known := next(explaining, None)) is not None:
            found.explained_by.add(known)
        else:
            says = f"the rule {function.id} says {ours}, {function.origin} computes {theirs}"
            found.unexplained.append(f"{numbers}: {says}")

    for numbers in function.also:
        one.hypothesis.inner_test(numbers)
    one()
    return found
