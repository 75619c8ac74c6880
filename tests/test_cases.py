"""Z3 finds numbers for every branch and boundary of a rule, and says which there are none for."""

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.model.arithmetic import counts
from kvproof.model.arithmetic.algebra import Num, if_
from kvproof.model.arithmetic.ranges import at_least
from kvproof.model.errors import UsageError
from tests.functions import cases
from tests.functions.cases import Cases, cases_of
from tests.processes import python

pytestmark = pytest.mark.proof

ANY = at_least(0)


def numbers(found: Cases) -> list[tuple[int, ...]]:
    return [tuple(case.numbers.values()) for case in found.cases]


def covered(found: Cases) -> list[str]:
    return [text for case in found.cases for text in case.covers]


def two_steps(n: Num, m: Num) -> Num:
    """0, 1, 2 or 3, by two conditions that have nothing to do with each other."""
    return if_(n >= 5, 2, 0) + if_(m < 3, 1, 0)


def test_every_branch_is_taken_in_every_combination() -> None:
    found = cases_of(two_steps, {"n": ANY, "m": ANY}, bound=9)
    assert {two_steps(n, m) for n, m in numbers(found)} == {0, 1, 2, 3}
    assert not found.unsettled
    combined = [t for t in covered(found) if "condition 1" in t and "condition 2" in t]
    assert len(combined) == 4


def test_a_boundary_is_found_where_it_decides() -> None:
    """Below 4 `m` makes no difference: the boundary of `m` must be tried above."""

    def masked(n: Num, m: Num) -> Num:
        return if_(n < 4, 0, if_(m <= 2, 1, 2))

    found = cases_of(masked, {"n": ANY, "m": ANY})
    assert {m for n, m in numbers(found) if n >= 4} >= {1, 2, 3}


def test_a_dead_branch_is_said_to_be_unreachable() -> None:
    found = cases_of(lambda n: if_(n >= 0, n, 0), {"n": ANY})
    assert "condition 1 is false: n >= 0" in found.unreachable
    assert "condition 1 is true: n >= 0" in covered(found)
    assert not found.unsettled


def test_what_z3_gives_up_on_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """No three cubes: Z3 can neither find numbers nor say that there are none."""
    monkeypatch.setattr(cases, "EFFORT", 20_000)
    ranges = dict.fromkeys("abc", at_least(1))
    found = cases_of(lambda a, b, c: if_(a * a * a + b * b * b == c * c * c, 1, 0), ranges)
    assert [t for t in found.unsettled if t.startswith("condition 1 is true")]
    assert not [t for t in found.unreachable if t.startswith("condition 1 is true")]


def branching(n: Num) -> Num:
    return n - 1 if n > 1 else n


def comparing(n: Num) -> Num:
    """Z3 answers `==` between terms in an `if` by comparing how they are written."""
    return 0 if n == 0 else n + 1


@pytest.mark.parametrize(
    ("rule", "said"),
    [(branching, "does not run on Z3 terms"), (comparing, "another result on Z3 terms")],
)
def test_a_rule_that_z3_cannot_follow_says_what_to_write(
    rule: Callable[..., Any], said: str
) -> None:
    with pytest.raises(UsageError, match=rf"{said}.*kvproof\.model\.arithmetic\.algebra"):
        cases_of(rule, {"n": ANY})


TRIM = dict.fromkeys(("local_first", "local_slots", "remote_first", "remote_slots"), ANY)


def test_a_rule_of_the_spec_is_covered_for_all_numbers() -> None:
    found = cases_of(counts.trim, TRIM)
    assert not found.unsettled
    assert {tuple(b > a for a, b in [counts.trim(*n)[:2]]) for n in numbers(found)} == {
        (True,),
        (False,),
    }


def test_other_processes_find_the_same_cases() -> None:
    program = (
        "from kvproof.model.arithmetic import counts;"
        "from kvproof.model.arithmetic.ranges import at_least;"
        "from tests.functions.cases import cases_of;"
        f"print(cases_of(counts.trim, dict.fromkeys({list(TRIM)}, at_least(0))))"
    )
    said = [python("-c", program, PYTHONHASHSEED=seed).stdout for seed in ("0", "1")]
    assert said[0] == said[1] == f"{cases_of(counts.trim, TRIM)}\n"
