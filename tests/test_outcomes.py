"""The outcomes of changed conditions, and which of them a run has."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.gate.source.outcomes import Conditions
from kvproof.gate.source.units import Module
from tests.test_reach import FILE, between

BEFORE = """
def take(blocks, free):
    if blocks:
        free -= 1
    return free


def last(blocks, free):
    while free:
        free -= 1
"""

AFTER = """
def take(blocks, free):
    if (
        blocks
        and free.count > 1
        and not free.late
    ):
        free.count -= 1
    return free


def last(blocks, free):
    while free:
        free -= 1
"""


def told(text: str, *changed_lines: int) -> dict[str, set[bool]]:
    """The operands of changed conditions, with the values that are waited for."""
    module = Module(text.encode(), "vllm.m", False)
    found = Conditions(FILE, module, 1).of(changed_lines)
    return {each.text: {*each.awaited} for one in found for each in one.operands}


BOTH = {True, False}


def test_each_operand_of_a_condition_has_both_values() -> None:
    assert told(AFTER, 5) == {"blocks": BOTH, "free.count > 1": BOTH, "free.late": BOTH}
    assert told(BEFORE, 3) == {"blocks": BOTH}


def test_of_a_condition_around_a_change_nothing_is_awaited() -> None:
    assert told(BEFORE, 4) == {"blocks": set()}
    assert told(BEFORE, 5) == {}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if a:\n        raise ValueError\n    return 1", {"a": {False}}),
        ("if a or b:\n        s = 1\n        raise s", {"a": {False}, "b": {False}}),
        ("if a and b:\n        raise s", {"a": BOTH, "b": {False}}),
        ("if not a:\n        raise s", {"a": {True}}),
        ("if a:\n        return 1\n    raise ValueError", {"a": {True}}),
        ("if a:\n        b = 1", {"a": BOTH}),
        ("while a:\n        a -= 1", {"a": BOTH}),
        ("return 1 if a else 2", {"a": BOTH}),
        ("return a and b or c", {"a": BOTH, "b": BOTH}),
        ("return [b for b in a if b]", {"b": BOTH}),
        ("return a(b or c)", {"b": BOTH}),
        ("while True:\n        a()", {}),
        ("assert a or b", {}),
    ],
)
def test_a_value_is_awaited_that_leads_to_more_than_a_refusal(
    body: str, expected: dict[str, set[bool]]
) -> None:
    assert told(f"def f(a):\n    {body}\n", 2) == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("if a:\n        b()", {"a": {True}}),
        ("if not a:\n        return b", {"a": {False}}),
        ("if a and b:\n        b()", {"a": {True}, "b": {True}}),
        ("if a or b:\n        b()", {"a": BOTH, "b": {True}}),
        ("if a:\n        b()\n    else:\n        c()", {"a": BOTH}),
        ("while a:\n        b()", {"a": BOTH}),
        ("c = a and b", {"a": BOTH}),
    ],
)
@pytest.mark.parametrize("removed", [False, True])
def test_what_the_other_side_does_without_a_statement_is_not_awaited(
    more: str, expected: dict[str, set[bool]], removed: bool, tmp_path: Path
) -> None:
    """Nor is it if the statement takes the place of nothing, and does nothing."""
    sides = "def f(a, b, c):\n    c()\n", f"def f(a, b, c):\n    {more}\n    c()\n"
    _, head = between(tmp_path, *(reversed(sides) if removed else sides))
    operands = [each for one in head.function.conditions for each in one.operands]
    assert {each.text: {*each.awaited} for each in operands} == expected


def test_the_statement_that_takes_the_place_of_another_is_awaited(tmp_path: Path) -> None:
    before = "def f(a, b, c):\n    if a:\n        b()\n    c()\n"
    after = "def f(a, b, c):\n    if b:\n        a()\n    c()\n"
    _, head = between(tmp_path, before, after)
    operands = [each for one in head.function.conditions for each in one.operands]
    assert [{*each.awaited} for each in operands] == [BOTH, BOTH]


def test_an_operand_that_only_moves_is_not_awaited(tmp_path: Path) -> None:
    """What joins it to others may change what it decides."""
    before = "def f(a, b):\n    if a or b:\n        b()\n    a()\n"
    after = "def f(a, b):\n    a()\n    if a and b:\n        b()\n"
    _, head = between(tmp_path, before, after)
    conditions = head.function.conditions
    awaited = {each.text for one in conditions for each in one.operands if each.awaited}
    assert awaited == {"a"}


def free(count: int, late: bool = False) -> SimpleNamespace:
    return SimpleNamespace(count=count, late=late)


@pytest.mark.parametrize(
    ("calls", "left"),
    [
        ([(0, None)], ["line 4: `blocks` was always False"]),
        (
            [(1, free(2))],
            [
                "line 4: `blocks` was always True",
                "line 5: `free.count > 1` was always True",
                "line 6: `free.late` was always False",
            ],
        ),
        ([(0, None), (1, free(2)), (1, free(0))], ["line 6: `free.late` was always False"]),
        ([(0, None), (1, free(2)), (1, free(0)), (1, free(2, True))], []),
    ],
)
def test_what_was_constant_is_named(
    calls: list[tuple[Any, Any]], left: list[str], tmp_path: Path
) -> None:
    _, head = between(tmp_path, BEFORE, AFTER)
    of_base = [key for key in head.function.awaited if "@-" in key]
    found = head.after(lambda m: [m.take(*given) for given in calls])
    assert head.function.ran(found.keys)
    assert head.function.not_run({*found.keys, *of_base}) == left


def test_an_operand_without_a_truth_value_raises_as_in_vllm(tmp_path: Path) -> None:
    _, head = between(tmp_path, BEFORE, AFTER)

    class Odd:
        def __bool__(self) -> bool:
            raise TypeError("odd")

    with pytest.raises(TypeError, match="odd") as raised:
        head.after(lambda m: m.take(Odd(), None))
    assert raised.traceback[-2].name == "take"
