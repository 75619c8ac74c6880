"""The search that looks for a run to a counterexample of a proof, on a system counted by hand."""

from typing import NamedTuple

import pytest

from kvproof.model.arithmetic.ranges import between
from kvproof.model.arithmetic.system import Action, System
from kvproof.proofs.proof import shortest_run


class Heap(NamedTuple):
    stones: int


class Piles(NamedTuple):
    left: int
    right: int = 0


def piles(few: int = 0) -> System:
    """One or two stones at a time go from one pile to another; `few` must stay."""
    return System(
        "piles",
        lambda heap: Piles(heap.stones),
        (
            Action(
                "move",
                lambda _heap, state: state.left > 0,
                lambda _heap, state, count: Piles(state.left - count, state.right + count),
                lambda _heap: {"count": between(1, 2)},
                lambda _heap, state, count: count <= state.left,
            ),
        ),
        {"few_stay": lambda _heap, state: state.left >= few},
    )


@pytest.mark.parametrize("stones", [0, 1, 5])
def test_all_states_are_reached_once(stones: int) -> None:
    assert shortest_run(piles(), Heap(stones), 9) == ((), stones + 1)


def test_a_run_to_a_broken_invariant_is_a_shortest_one() -> None:
    assert shortest_run(piles(few=2), Heap(5), 9)[0] == ("move(2,)", "move(2,)")


def test_a_search_that_is_cut_finds_nothing_behind_the_cut() -> None:
    run, states = shortest_run(piles(few=2), Heap(9), states_max=3)
    assert run == ()
    assert 3 < states < 10
