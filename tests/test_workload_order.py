"""Workloads that reach what changed are run first."""

import random

import pytest

from kvproof.gate.difference.order import covering, ordered

REACHED = {
    "idle": frozenset({"a.py:x"}),
    "one": frozenset({"a.py:f", "a.py:x"}),
    "two": frozenset({"a.py:f", "a.py:g"}),
    "three": frozenset({"a.py:f", "a.py:g", "b.py:C.m"}),
    "other": frozenset({"b.py:C.n", "a.py:f"}),
}
CHANGED = ["a.py:f", "a.py:g", "b.py:C.m", "b.py:C.n", "b.py:never"]


def test_each_changed_function_is_reached_early() -> None:
    assert ordered(list(REACHED), REACHED, CHANGED) == ["three", "other", "two", "one", "idle"]


@pytest.mark.parametrize("seed", range(20))
def test_every_prefix_reaches_what_it_can(seed: int) -> None:
    """The result has each name once, does not depend on the order of the changed functions, and
    what reaches something new is never behind what does not."""
    choose = random.Random(seed)
    functions = [f"{file}.py:{name}" for file in "ab" for name in "fghij"]
    names = [f"w{number}" for number in range(12)]
    reached = {name: frozenset(choose.sample(functions, choose.randint(0, 4))) for name in names}
    changed = choose.sample(functions, 5)
    order = ordered(names, reached, changed)
    assert sorted(order) == sorted(names)
    assert ordered(names, reached, choose.sample(changed, 5)) == order
    gains, seen = [], set[str]()
    for name in order:
        gains.append(len((reached[name] & set(changed)) - seen))
        seen |= reached[name]
    assert gains == sorted(gains, reverse=True)


def test_a_few_names_have_all_that_is_not_known() -> None:
    has = {"a": {1}, "b": {1, 2}, "c": {3}, "d": {2, 3, 4}}
    assert covering(list(has), has) == ["d", "a"]
    assert covering(list(has), has, known={1}) == ["d"]
    assert covering(list(has), has, known={1, 2, 3, 4}) == []
