"""The spec: a wrong step is refused with a sentence, and what vLLM may do otherwise passes. Steps
are made by hand, from steps of the reference. That no guard is idle is asked in `test_guards`."""

import pytest

from kvproof.invariants.check import broken
from kvproof.invariants.registry import CHECKS, GUARDS
from kvproof.model.events import bare
from tests.made_steps import (
    EXAMPLES,
    ONE,
    Made,
    admitted,
    other_block,
)

ASKED = [CHECKS[name] for name in GUARDS]


def told(made: Made) -> dict[str, str]:
    cluster, step = made
    return {f.invariant: f.sentence for f in broken(cluster, step, ASKED)}


def test_each_example_is_of_a_guard() -> None:
    assert set(EXAMPLES) <= set(GUARDS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_wrong_step_is_told_in_a_sentence(name: str) -> None:
    found = told(EXAMPLES[name][1]())
    assert name in found
    assert ", yet " in found[name]


@pytest.mark.parametrize(("old", "new"), [(1, 7), (2, 11)])
def test_another_free_block_may_be_taken(old: int, new: int) -> None:
    step = other_block(admitted(), "E", old, new)
    assert step.event != admitted().event
    assert bare(step.event) == bare(admitted().event)
    assert not told((ONE, step))
