"""The outcomes of changed conditions, and which of them a run has."""

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kvproof.gate.source import outcomes
from kvproof.gate.source.changes import ChangedFunction, changed
from kvproof.gate.source.outcomes import Outcomes
from kvproof.gate.source.probes import Probes
from kvproof.gate.source.reach import reached
from kvproof.gate.source.units import Module
from tests.packages import package
from tests.test_reach import module_of

FILE = "v1/core/block_pool.py"
"""A file of the accounting."""

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


def lines(module: Module, *changed_lines: int) -> set[tuple[int, int]]:
    return {*Outcomes(module).of(changed_lines)}


def of(text: str) -> Module:
    return Module(text.encode(), "vllm.m", False)


def test_each_part_of_a_condition_of_several_lines_has_outcomes() -> None:
    found = lines(of(AFTER), *range(3, 8))
    assert {to for _, to in found} >= {8, 9}  # the body, and what comes after it
    assert len({line for line, _ in found}) > 1
    assert lines(of(BEFORE), 3) == {(3, 4), (3, 5)}
    assert lines(of(BEFORE), 4, 5) == set()  # no condition


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    if a:\n        raise ValueError\n    return 1\n", {(2, 4)}),
        ("    if a:\n        b = 1\n", {(2, 3), (2, -1)}),
        ("    for b in a:\n        if b:\n            continue\n        a = 1\n", {(3, 4), (3, 5)}),
        ("    while a:\n        a -= 1\n    return a\n", {(2, 3), (2, 4)}),
        ("    return 1 if a else 2\n", set()),
        ("    assert a\n    return 1\n", set()),
    ],
    ids=["raises", "end", "loop", "while", "one line", "assertion"],
)
def test_an_outcome_leads_to_another_line_that_does_more_than_raise(
    body: str, expected: set[tuple[int, int]]
) -> None:
    found = lines(of(f"def f(a):\n{body}"), 2, 3)
    first = min((line for line, _ in found), default=0)
    assert {each for each in found if each[0] == first} == expected


def both(folder: Path) -> tuple[Probes, ChangedFunction, ModuleType]:
    """The probes of head, with a changed condition, its changed function, and its module."""
    base = package(folder / "base", {FILE: BEFORE})
    head = package(folder / "head", {FILE: AFTER})
    made = changed(base, head)
    [function] = made.accounting
    probes = Probes(head, made.places[1])
    return probes, function, module_of(probes, head)


def test_a_run_has_the_outcomes_of_the_values_that_it_met(tmp_path: Path) -> None:
    probes, function, module = both(tmp_path)
    here = {key for key in function.outcomes if outcomes.place_of(key)[0] > 0}
    assert set(function.outcomes) - here  # those of base

    def met(*calls: tuple[Any, Any]) -> set[str]:
        with reached(probes) as found:
            for blocks, free in calls:
                module.take(blocks, free)
        assert function.ran(found.keys)
        return here & found.keys

    def free(count: int, late: bool) -> SimpleNamespace:
        return SimpleNamespace(count=count, late=late)

    never, taken, late = met((0, None)), met((1, free(2, False))), met((1, free(2, True)))
    assert never
    assert taken
    assert never != taken != late
    assert met((0, None), (1, free(2, False)), (1, free(2, True)), (1, free(0, False))) == here
    assert never | taken < here
