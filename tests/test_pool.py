"""The block pool: who gets which block, what is evicted for it, and where a freed block goes."""

from hypothesis import given
from hypothesis import strategies as st

from kvproof.model.kv_events import Removed
from kvproof.model.reference.blocks import pool
from kvproof.model.state import NULL, Engine
from tests.by_hand import config, pool_of, request

A, AB, ABC, XY = (0, "a"), (0, "ab"), (0, "abc"), (0, "xy")


def refs(engine: Engine) -> list[int]:
    return [block.refs for block in engine.blocks]


# The map from keys to blocks


def test_a_key_is_told_to_be_removed_with_its_last_block_only() -> None:
    engine = pool_of(4, cached={AB: (1, 3)}, reports=())
    engine = pool.forget_key(engine, AB, 1)
    assert (engine.blocks_for(AB), engine.reports) == ((3,), ())
    engine = pool.forget_key(engine, AB, 3)
    assert (engine.cached, engine.reports) == ((), (Removed(0, "ab"),))


def test_nothing_is_cached_in_the_null_block() -> None:
    engine = pool_of(4)
    assert pool.cache_block(config(), engine, AB, NULL) is engine


def test_what_was_cached_since_a_step_began_can_be_taken_back() -> None:
    begun = pool_of(5, cached={AB: 1})
    later = pool.register(pool.register(begun, ABC, 2), XY, 3)
    gone = request("abc", (1, 2, NULL), (4,))
    assert pool.forget_uncomputed(begun, later, gone).cached == ((AB, (1,)), (XY, (3,)))


# Laws

USES = st.lists(st.tuples(st.sampled_from(["take", "cache", "hit", "release"]), st.integers(0, 9)))


def used(engine: Engine, what: str, number: int, held: list[int]) -> Engine:
    """The pool after one use of it. `held` has each block once for each reference."""
    cached = [block for _, blocks in engine.cached for block in blocks]
    if what == "take" and number <= len(engine.free):
        engine, taken = pool.take(engine, number)
        held += taken
    elif what == "cache" and held and not engine.blocks[held[number % len(held)]].keys:
        engine = pool.register(engine, (0, "ab"[: 1 + number % 2]), held[number % len(held)])
    elif what == "hit" and cached:
        engine = pool.touch(engine, [cached[number % len(cached)]])
        held.append(cached[number % len(cached)])
    elif what == "release" and held:
        engine = pool.release(engine, [held.pop(number % len(held))])
    return engine


@given(USES)
def test_every_block_is_free_once_or_in_use_and_the_map_and_the_blocks_agree(
    uses: list[tuple[str, int]],
) -> None:
    engine, held = pool_of(6), list[int]()
    for what, number in uses:
        engine = used(engine, what, number, held)
        assert refs(engine) == [held.count(block) for block in range(6)]
        assert sorted({*engine.free, *held}) == [1, 2, 3, 4, 5]
        assert len(engine.free) + len(set(held)) == 5
        mapped = {(key, block) for key, blocks in engine.cached for block in blocks}
        assert mapped == {(k, n) for n, b in enumerate(engine.blocks) for k in b.keys}


@given(st.permutations([1, 2, 3, 4, 5]))
def test_the_block_that_was_released_first_is_evicted_first(order: list[int]) -> None:
    keys = {(0, "abcde"[:block]): block for block in order}
    engine = pool_of(6, held=dict.fromkeys(order, 1), cached=keys, free=())
    for block in order:
        engine = pool.release(engine, [block])
    assert pool.take(engine, 5)[1] == tuple(order)
