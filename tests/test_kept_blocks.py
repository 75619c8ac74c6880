"""Which blocks and which cache entries a step may keep, lose or take first: with an excuse it is
counted, without one it is violated."""

import pytest

from kvproof.invariants.blocks import (
    ended_requests_free_at_once,
    uncached_blocks_are_reused_at_once,
    unneeded_blocks_are_reused_first,
)
from kvproof.invariants.guards_of_blocks import (
    entry_is_lost_with_its_block,
    passed_blocks_are_freed,
)
from kvproof.invariants.kv_events import events_are_published
from kvproof.invariants.tables import table_fits_its_tokens
from kvproof.model.config import Cluster, EngineConfig, Group
from kvproof.model.events import (
    Complete,
    Compute,
    Event,
    Preempt,
    ResetPrefixCache,
    ResetRunning,
    Schedule,
)
from kvproof.model.state import RUNNING, Flight, Key, Request
from tests.reasons import alone, answers
from tests.test_reference import pool_of

FULL, WINDOW, STATE = Group("full", 2), Group("window", 2, window=3), Group("mamba", 4)
AB, ABCD = (0, "ab"), (0, "abcd")
COUNTED, EXCUSED, BROKEN = (1, 0, 0), (1, 1, 0), (1, 0, 1)


def cluster(*groups: Group, **options: object) -> Cluster:
    return Cluster("c", (EngineConfig("E", groups),), **options)  # type: ignore[arg-type]


def running(*tables: tuple[int, ...], computed: int = 4) -> Request:
    return Request("r0", RUNNING, "abcdefgh", 8, 1, computed=computed, tables=tables)


@pytest.mark.parametrize(
    ("groups", "event", "left", "expected"),
    [
        ((FULL,), Complete("E"), {}, BROKEN),
        ((FULL,), Schedule("E", (Preempt("r0", "r1", freed=((1,),)),)), {}, EXCUSED),
        ((FULL,), Complete("E", failed="r0"), {}, EXCUSED),
        ((FULL,), Complete("E"), {(0, "abc"): 1}, COUNTED),  # it serves a hit of "ab" too
        ((STATE,), Complete("E"), {(0, "abc"): 1}, EXCUSED),  # it is another state
    ],
)
def test_an_entry_is_lost_where_its_tokens_are_not_computed_or_its_state_goes_on(
    groups: tuple[Group, ...],
    event: Event,
    left: dict[Key, int],
    expected: tuple[int, int, int],
) -> None:
    before = pool_of(cached={AB: 1}, held={1: 1}, requests=(running((1,)),))
    after = pool_of(cached=left, held={1: 1}, requests=(running((1,)),))
    check = entry_is_lost_with_its_block
    assert answers(check, cluster(*groups), alone(before, event, after)) == expected


@pytest.mark.parametrize(("table", "expected"), [((0, 2, 3), COUNTED), ((1, 2, 3), BROKEN)])
def test_a_window_keeps_no_block_of_tokens_that_no_step_reads(
    table: tuple[int, ...], expected: tuple[int, int, int]
) -> None:
    """The next token is the fifth: a window of three reads the two before it."""
    before = pool_of(requests=(running((1, 2)),))
    after = pool_of(requests=(running(table, computed=5),))
    step = alone(before, Schedule("E", (Compute("r0", 1),)), after)
    assert answers(passed_blocks_are_freed, cluster(WINDOW), step) == expected


def test_a_window_keeps_what_a_step_in_flight_reads() -> None:
    flight = Flight("r0", 2, samples=False)
    before = pool_of(requests=(running((1, 2)),), steps=((flight,),))
    after = pool_of(requests=(running((1, 2, 3), computed=5),))
    step = alone(before, Schedule("E", (Compute("r0", 1),)), after)
    assert answers(passed_blocks_are_freed, cluster(WINDOW), step) == COUNTED


@pytest.mark.parametrize(("used", "expected"), [((1,), COUNTED), ((2,), EXCUSED)])
def test_blocks_of_an_ended_request_wait_only_for_steps_that_use_them(
    used: tuple[int, ...], expected: tuple[int, int, int]
) -> None:
    flight = Flight("r0", 1, samples=True, blocks=used)
    before = pool_of(held={1: 1}, requests=(running((1,)),), steps=((flight,),))
    after = pool_of(held={1: 1}, deferred=((1, (1,)),))
    step = alone(before, Complete("E"), after)
    assert answers(ended_requests_free_at_once, cluster(FULL), step) == expected


@pytest.mark.parametrize(
    ("event", "expected"), [(ResetRunning("E"), EXCUSED), (Complete("E"), BROKEN)]
)
def test_a_block_that_a_reset_makes_useless_may_go_last(
    event: Event, expected: tuple[int, int, int]
) -> None:
    before = pool_of(cached={AB: 1}, held={1: 1}, free=(2, 3, 4, 5))
    after = pool_of(free=(2, 3, 4, 5, 1))
    check = uncached_blocks_are_reused_at_once
    assert answers(check, cluster(FULL), alone(before, event, after)) == expected


@pytest.mark.parametrize(("evictions", "expected"), [(True, EXCUSED), (False, BROKEN)])
def test_a_cached_block_is_taken_first_only_where_blocks_are_evicted_from_outside(
    evictions: bool, expected: tuple[int, int, int]
) -> None:
    before = pool_of(cached={AB: 1}, free=(1, 2, 3, 4, 5))
    after = pool_of(held={1: 1}, free=(2, 3, 4, 5), requests=(running((1,)),))
    here = cluster(FULL, evictions=evictions)
    step = alone(before, Schedule("E"), after)
    assert answers(unneeded_blocks_are_reused_first, here, step) == expected


@pytest.mark.parametrize(("failures", "expected"), [(1, EXCUSED), (0, BROKEN)])
def test_a_table_has_more_entries_only_where_a_load_of_a_store_may_fail(
    failures: int, expected: tuple[int, int, int]
) -> None:
    engine = EngineConfig("E", (FULL,), store=True)
    here = Cluster("c", (engine,), failures=failures)
    state = pool_of(held={1: 1, 2: 1}, requests=(running((1, 2), computed=1),))
    assert answers(table_fits_its_tokens, here, alone(state, Complete("E"))) == expected


@pytest.mark.parametrize(
    ("event", "kept", "expected"),
    [
        (Complete("E"), (), COUNTED),
        (Complete("E"), ("E",), EXCUSED),
        (ResetPrefixCache("E"), ("E",), EXCUSED),
        (Schedule("E"), ("E",), (0, 0, 0)),  # its output is still to come
    ],
)
def test_kv_events_are_published_with_the_output_of_their_step(
    event: Event, kept: tuple[str, ...], expected: tuple[int, int, int]
) -> None:
    here = Cluster("c", (EngineConfig("E", (FULL,), kv_events=True),))
    idle = pool_of(reports=())
    busy = idle._replace(requests=(running((1,)),))
    after = busy if isinstance(event, Schedule) else idle
    step = alone(busy, event, after, unpublished=kept)
    assert answers(events_are_published, here, step) == expected
