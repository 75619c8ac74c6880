"""The search that looks for a run to a counterexample of a proof, on a system counted by hand."""

from typing import NamedTuple

import pytest

from kvproof.model.arithmetic.ranges import Range, at_least, between
from kvproof.model.arithmetic.system import Action, System
from kvproof.model.errors import UsageError
from kvproof.proofs.states import ActionTaken, search
from kvproof.strategies.verdict import Verdict


class Heap(NamedTuple):
    stones: int


class Piles(NamedTuple):
    left: int
    right: int = 0


def piles(few: int = 0, most: Range = between(1, 2)) -> System:  # noqa: B008 (a constant)
    """One or two stones at a time go from one pile to another; `few` must stay."""
    return System(
        "piles",
        lambda heap: Piles(heap.stones),
        (
            Action(
                "move",
                lambda _heap, state: state.left > 0,
                lambda _heap, state, count: Piles(state.left - count, state.right + count),
                lambda _heap: {"count": most},
                lambda _heap, state, count: count <= state.left,
            ),
        ),
        {"few_stay": lambda _heap, state: state.left >= few},
    )


@pytest.mark.parametrize("stones", [0, 1, 5])
def test_all_states_are_reached_once(stones: int) -> None:
    reached = search(piles(), Heap(stones))
    assert (reached.states, reached.verdict) == (stones + 1, Verdict.EXHAUSTED)


def test_a_run_to_a_broken_invariant_is_a_shortest_one() -> None:
    reached = search(piles(few=2), Heap(5))
    assert (reached.verdict, reached.broken) == (Verdict.VIOLATED, "few_stay")
    assert reached.trace == (ActionTaken("move", (2,)), ActionTaken("move", (2,)))


def test_a_search_that_is_cut_knows_nothing() -> None:
    reached = search(piles(), Heap(9), states_max=3)
    assert reached.cut
    assert reached.verdict is Verdict.UNKNOWN


def test_a_choice_without_an_end_is_refused() -> None:
    with pytest.raises(UsageError, match=r"choice 'count' of 'move' has no end.*Give it"):
        search(piles(most=at_least(1)), Heap(3))
