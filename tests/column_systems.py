"""Small systems for the tests of the search on columns."""

import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

from kvproof.model.arithmetic.algebra import all_of
from kvproof.model.arithmetic.ranges import between
from kvproof.model.arithmetic.system import Action, System


def _kv_transfer() -> Any:
    path = Path(__file__).parents[1] / "benchmarks" / "side_by_side" / "kv_transfer.py"
    spec = importlib.util.spec_from_file_location("kv_transfer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


kv_transfer = _kv_transfer()
KV_TRANSFER: System = kv_transfer.KV_TRANSFER


class Heap(NamedTuple):
    """How high a pile is at first."""

    height: int


class Piles(NamedTuple):
    """Three piles of stones, and whose turn it is, counted from -1."""

    turn: int
    piles: tuple[int, int, int]


def piles(*, first: bool = False, low: int = 0, alike: str = "piles") -> System:
    """Any number of stones is taken from a pile. With `first`, pile 2 goes first. It must be true
    that the piles together hold at least `low`."""

    def action(number: int) -> Action:
        def there(_heap, state, taken):
            waits = state.piles[2] if first and number != 2 else 0
            return all_of(state.piles[number] >= taken, waits == 0)

        def take(_heap, state, taken):
            left = list(state.piles)
            left[number] = left[number] - taken
            return Piles(0 - state.turn, tuple(left))

        return Action(
            f"take {number}",
            lambda _heap, state: state.piles[number] > 0,
            take,
            lambda heap: {"taken": between(1, heap.height)},
            there,
        )

    return System(
        "piles",
        lambda heap: Piles(-1, (heap.height,) * 3),
        lambda heap: Piles(between(-1, 1), (between(0, heap.height),) * 3),
        [action(number) for number in range(3)],
        {
            "never_negative": lambda _heap, state: state.piles[0] >= 0,
            "stones_are_left": lambda _heap, state: sum(state.piles) >= low,
        },
        alike,
    )


class Wide(NamedTuple):
    """Two entries that are too wide for a word each."""

    entries: tuple[tuple[int, ...], tuple[int, ...]]


TOP = 1_000_000


def wide() -> System:
    """Each number of each entry falls to 0 once."""

    def action(entry: int, number: int) -> Action:
        def fall(_none, state):
            entries = [list(one) for one in state.entries]
            entries[entry][number] = 0
            return Wide(tuple(map(tuple, entries)))

        return Action(f"fall {entry} {number}", lambda _none, s: s.entries[entry][number] > 0, fall)

    return System(
        "wide",
        lambda _none: Wide(((TOP,) * 4, (TOP,) * 4)),
        lambda _none: Wide(((between(0, TOP),) * 4,) * 2),
        [action(entry, number) for entry in range(2) for number in range(4)],
        alike="entries",
    )
