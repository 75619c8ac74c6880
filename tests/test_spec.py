"""The spec: a wrong step is refused with a sentence, and what vLLM may do otherwise passes. Steps
are made by hand, from steps of the reference. That no guard is idle is asked in `test_guards`."""

import pytest

from kvproof.invariants.check import broken
from kvproof.invariants.registry import CHECKS, GUARDS
from kvproof.model.events import Abort, bare
from kvproof.model.state import MISQUEUED
from tests.made_steps import (
    EXAMPLES,
    ONE,
    SERVED,
    Made,
    admitted,
    chunk_of,
    hit,
    last,
    other_block,
)

ASKED = [CHECKS[name] for name in GUARDS]


def told(made: Made) -> dict[str, str]:
    cluster, step = made
    return {f.invariant: f.sentence for f in broken(cluster, step, ASKED)}


def test_each_example_is_of_a_guard() -> None:
    assert set(EXAMPLES) <= set(GUARDS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_left_open_passes(name: str) -> None:
    assert name not in told(EXAMPLES[name][0]())


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


def test_a_request_that_is_in_no_queue_may_be_aborted() -> None:
    step = last(ONE, *SERVED, Abort("E", "r1"))
    before = step.before.engine("E")
    lost = (r._replace(status=MISQUEUED) if r.id == "r1" else r for r in before.requests)
    engines = (before._replace(requests=tuple(lost)),)
    assert not told((ONE, step._replace(before=step.before._replace(engines=engines))))


def test_another_chunk_may_be_chosen() -> None:
    cluster, step = chunk_of(1)
    assert step.event != hit().event
    assert not told((cluster, step))
