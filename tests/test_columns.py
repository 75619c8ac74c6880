"""The search on columns is the plain one, symmetry is sound, and the gates say so when not."""

import math

import numpy as np
import pytest

from kvproof.model.arithmetic.algebra import all_of
from kvproof.model.arithmetic.ranges import at_least, between
from kvproof.model.arithmetic.system import Action, System
from kvproof.model.errors import UsageError
from kvproof.strategies.systems import column_steps, layout, visited
from kvproof.strategies.systems import columns as on_columns
from kvproof.strategies.systems.columns import ColumnSearch
from kvproof.strategies.systems.gates import alike_differs, columns_differ
from kvproof.strategies.systems.plain import replay, search
from kvproof.strategies.systems.visited import Visited
from kvproof.strategies.verdict import Verdict
from tests.column_systems import KV_TRANSFER, Heap, Piles, kv_transfer, piles, wide

pytestmark = pytest.mark.exhaustive

TINY = {
    kv_transfer.Sizes(6, 2, 1, 2, 4, 5): (256, 132),
    kv_transfer.Sizes(10, 3, 2, 2, 7, 9): (604, 307),
    kv_transfer.Sizes(9, 4, 3, 4, 3, 4): (365, 187),
}


def done(nobody_is_done) -> System:
    """The model of the benchmark, with another invariant."""
    parts = KV_TRANSFER.initial, KV_TRANSFER.ranges, KV_TRANSFER.actions
    return System("done", *parts, {"nobody_is_done": nobody_is_done}, "requests")


@pytest.mark.parametrize("sizes", TINY)
def test_columns_are_plain(sizes) -> None:
    assert columns_differ(KV_TRANSFER, sizes) is None
    assert alike_differs(KV_TRANSFER, sizes) is None
    states = [ColumnSearch(KV_TRANSFER, sizes, symmetric=s).run().states for s in (False, True)]
    assert tuple(states) == TINY[sizes]


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_slices_make_no_difference(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(on_columns, "SLICE", at_once)
    monkeypatch.setattr(column_steps, "PAIRS_MAX", at_once)
    monkeypatch.setattr(visited, "AT_ONCE", at_once)
    assert columns_differ(KV_TRANSFER, kv_transfer.Sizes(6, 2, 1, 2, 4, 5)) is None
    assert columns_differ(piles(low=4), Heap(3)) is None


def test_the_small_size_of_the_benchmark() -> None:
    reached = ColumnSearch(KV_TRANSFER, kv_transfer.SIZES["small"]).run()
    assert (reached.states, reached.generated, reached.depth) == (13_284, 85_448, 54)
    assert reached.verdict is Verdict.EXHAUSTED
    assert all(reached.fired.values())
    assert sum(reached.new.values()) == reached.states - 1
    reduced = ColumnSearch(KV_TRANSFER, kv_transfer.SIZES["small"], symmetric=True).run()
    assert (reduced.states, reduced.depth) == (6_659, 54)


def test_orbits_of_piles_are_counted_in_closed_form() -> None:
    """Of n stones a pile, (n + 1)**3 heaps; up to order, n + 3 over 3."""
    system = piles()
    assert columns_differ(system, Heap(5)) is None
    assert alike_differs(system, Heap(5)) is None
    search_ = ColumnSearch(system, Heap(9), symmetric=True)
    search_.run()
    heaps = {state.piles for state in search_.states()}
    assert len(heaps) == math.comb(9 + 3, 3)
    assert all(list(heap) == sorted(heap) for heap in heaps)


def test_an_entry_wider_than_a_word() -> None:
    assert columns_differ(wide(), ()) is None
    assert alike_differs(wide(), ()) is None
    assert ColumnSearch(wide(), ()).run().states == 4**4
    assert ColumnSearch(wide(), (), symmetric=True).run().states == 16 * 17 // 2


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_broken_invariant_has_a_shortest_trace(symmetric: bool) -> None:
    system = piles(low=4)
    assert columns_differ(system, Heap(3)) is None
    assert alike_differs(system, Heap(3)) is None
    reached = ColumnSearch(system, Heap(3), symmetric=symmetric).run()
    assert reached.verdict is Verdict.VIOLATED
    assert reached.broken == "stones_are_left"
    assert len(reached.trace) == 2
    assert sum(replay(system, Heap(3), reached.trace).piles) < 4


def test_a_longer_trace_of_the_benchmark_replays() -> None:
    sizes = kv_transfer.Sizes(10, 3, 2, 2, 7, 9)
    system = done(lambda _s, state: all_of(*(r.phase < kv_transfer.DONE for r in state.requests)))
    assert columns_differ(system, sizes) is None
    assert alike_differs(system, sizes) is None
    for symmetric in (False, True):
        reached = ColumnSearch(system, sizes, symmetric=symmetric).run()
        assert len(reached.trace) == 12
        phases = [r.phase for r in replay(system, sizes, reached.trace).requests]
        assert kv_transfer.DONE in phases


def test_an_invariant_that_names_a_request_gives_no_false_trace() -> None:
    system = done(lambda _s, state: state.requests[1].phase < kv_transfer.DONE)
    sizes = kv_transfer.Sizes(10, 3, 2, 2, 7, 9)
    assert len(ColumnSearch(system, sizes).run().trace) == 12
    with pytest.raises(UsageError, match="nobody_is_done holds where the trace ends"):
        ColumnSearch(system, sizes, symmetric=True).run()


def test_a_cut_search_is_not_exhausted() -> None:
    reached = ColumnSearch(piles(), Heap(9)).run(states_max=50)
    assert reached.cut
    assert reached.verdict is Verdict.UNKNOWN
    whole = ColumnSearch(piles(), Heap(2)).run()
    assert not ColumnSearch(piles(), Heap(2)).run(states_max=whole.states).cut
    plain, _ = search(piles(), Heap(9), states_max=50)
    assert plain.verdict is Verdict.UNKNOWN


def test_a_cut_search_asks_the_invariants_of_all_it_has_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(on_columns, "SLICE", 1)
    reached = ColumnSearch(piles(low=6), Heap(3)).run(states_max=12)
    assert reached.cut
    assert reached.verdict is Verdict.VIOLATED
    assert len(reached.trace) == 2
    assert sum(replay(piles(low=6), Heap(3), reached.trace).piles) < 6


def test_a_codec_with_a_bit_too_few_turns_the_gate_red(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = layout._bits
    monkeypatch.setattr(layout, "_bits", lambda *of: max(bits(*of) - 1, 0))
    assert columns_differ(KV_TRANSFER, kv_transfer.Sizes(10, 3, 2, 2, 7, 9)) is not None


def test_a_set_that_compares_one_word_only_turns_the_gate_red(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slots, differ = Visited._slots, Visited._differ
    monkeypatch.setattr(Visited, "_slots", lambda self, words: slots(self, words[:1]))
    monkeypatch.setattr(
        Visited, "_differ", lambda self, found, words: differ(self, found, words[:1])
    )
    assert columns_differ(wide(), ()) is not None


def test_piles_that_are_not_alike_turn_the_gate_red() -> None:
    system = piles(first=True)
    assert columns_differ(system, Heap(3)) is None
    assert alike_differs(system, Heap(3)) is not None


def test_an_invariant_that_names_an_entry_turns_the_gate_red() -> None:
    system = piles()
    system = System(
        *(system.name, system.initial, system.ranges, system.actions),
        {"first_is_left": lambda _heap, state: state.piles[2] > 0},
        "piles",
    )
    assert alike_differs(system, Heap(3)) is not None


def test_an_initial_state_that_names_an_entry_turns_the_gate_red() -> None:
    system = piles()
    system = System(
        *(system.name, lambda heap: Piles(-1, (heap.height, 0, 0)), system.ranges, system.actions),
        alike="piles",
    )
    assert alike_differs(system, Heap(3)) is not None


def test_a_number_outside_its_range_is_named() -> None:
    system = piles()
    tight = System(
        *(system.name, system.initial),
        lambda heap: Piles(between(-1, 1), (between(1, heap.height),) * 3),
        system.actions,
    )
    with pytest.raises(UsageError, match=r"piles\[0\] is 0, which is outside 1..3"):
        ColumnSearch(tight, Heap(3)).run()


def test_a_range_must_end() -> None:
    system = System("endless", lambda _n: Heap(0), lambda _n: Heap(at_least(0)), [])
    with pytest.raises(UsageError, match="height"):
        ColumnSearch(system, ())


def cube() -> System:
    """Multiplies three numbers."""
    cut = Action("cut", lambda n, s: s.height * n.height * n.height > 0, lambda _n, _s: Heap(0))
    return System("cube", lambda n: Heap(n.height), lambda n: Heap(between(0, n.height)), [cut])


@pytest.mark.parametrize("height", [1000, 1500, 1_000_000])
def test_products_of_three_numbers_are_right(height: int) -> None:
    """1500 * 1500 * 1500 does not fit 32 bits."""
    assert columns_differ(cube(), Heap(height)) is None
    assert ColumnSearch(cube(), Heap(height)).run().states == 2


def test_narrow_columns_would_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_steps, "NARROW_MAX", 1500)
    assert columns_differ(cube(), Heap(1500)) is not None


def test_numbers_too_large_for_columns_are_refused() -> None:
    with pytest.raises(UsageError, match="above"):
        ColumnSearch(cube(), Heap(1_000_001))


def test_nothing_alike_cannot_be_symmetric() -> None:
    with pytest.raises(UsageError, match="alike"):
        ColumnSearch(piles(alike=""), Heap(2), symmetric=True)


@pytest.mark.parametrize("all_collide", [False, True])
def test_the_set_is_a_set(monkeypatch: pytest.MonkeyPatch, all_collide: bool) -> None:
    if all_collide:
        monkeypatch.setattr(Visited, "_slots", lambda _self, words: np.zeros(words.shape[1], int))
    generator = np.random.default_rng(1)
    known: set[tuple[int, ...]] = set()
    ours = Visited(2, bits=2)
    for _ in range(10):
        batch = generator.integers(1, 30, (2, 200), dtype=np.uint64)
        new = ours.add(batch)
        assert list(new) == sorted(new)
        added = list(zip(*batch[:, new].tolist(), strict=True))
        assert len(set(added)) == len(added)
        assert not known & set(added)
        known |= set(added)
        assert known == known | set(zip(*batch.tolist(), strict=True))
    assert len(ours) == len(known)
    assert set(zip(*ours.words(0, len(ours)).tolist(), strict=True)) == known
