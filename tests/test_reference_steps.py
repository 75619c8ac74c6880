"""A scheduler step of the reference: what it may choose, which blocks it takes, and how it ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproof.model.config import Job
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Admit, Compute, FinishLoad, Preempt, Release
from kvproof.model.reference.scheduling import step_output
from kvproof.model.reference.scheduling.computing import aligned_chunk
from kvproof.model.reference.scheduling.scheduler import dispatch, take_choice
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import COUNTS, LATE, Death, Flight, State
from tests.by_hand import (
    EAGLE,
    FULL,
    MAMBA,
    WIDE,
    WIDE_STATE,
    both,
    cluster,
    config,
    on_decode,
    on_prefill,
    pair,
    refused,
    request,
    running,
    serving,
    step,
)
from tests.planted import mistaken

# Admission

FRESH = request("abcd")


@pytest.mark.parametrize(
    ("other", "limit", "starts"),
    [("running", 1, False), ("running", 2, True), ("paused", 1, False), ("loading", 1, True)],
)
def test_no_more_run_than_may(other: str, limit: int, starts: bool) -> None:
    held = request("xy", (1,), name="r1", status=other, computed=2)
    cfg = config(FULL, max_requests=limit)
    if starts:
        take_choice(step(cfg, FRESH, held), Admit("r0", 0, 0))
    else:
        refused(step(cfg, FRESH, held), Admit("r0", 0, 0), r"max_requests \(1\) reached")
        waits = request("abcd", (2,), computed=2)
        refused(step(cfg, waits, held), Compute("r0", 2), r"max_requests \(1\) reached")


def test_only_who_waits_without_blocks_is_admitted() -> None:
    held = running("abcd", (1,), computed=2)
    refused(step(config(FULL), held), Admit("r0", 0, 0), "r0 is running")
    waits = request("abcd", (1,), computed=2)
    refused(step(config(FULL), waits), Admit("r0", 0, 0), "r0 is waiting")
    again = request("abcd", status="preempted")
    take_choice(step(config(FULL), again), Admit("r0", 0, 0))


def test_nobody_is_admitted_before_a_token_that_is_still_to_come() -> None:
    late = ((Flight("r0", 1, True, LATE),),)
    work = step(config(FULL, steps_in_flight=2), FRESH, steps=late)
    refused(work, Admit("r0", 0, 0), "has output pending")


def test_what_the_cache_does_not_hold_is_no_hit() -> None:
    refused(step(config(FULL), FRESH), Admit("r0", 2, 0), "does not hold")


def test_a_state_that_this_step_is_to_write_is_no_hit() -> None:
    first, second = request("abc"), request("abx", name="r1")
    for groups, allowed in ((FULL, MAMBA), False), ((FULL,), True):
        work = step(config(*groups), first, second)
        take_choice(work, Admit("r0", 0, 0))
        take_choice(work, Compute("r0", 2))
        if allowed:
            take_choice(work, Admit("r1", 2, 0))
        else:
            refused(work, Admit("r1", 2, 0), "r1 hits a state that this step will write")


# Chunks


@pytest.mark.parametrize(
    ("limit", "start", "tokens"),
    [(3, 0, 3), (3, 3, 1), (4, 0, 0)],
)
def test_the_budget_may_be_too_small_for_a_block(limit: int, start: int, tokens: int) -> None:
    """Of a block of four tokens a step has three left."""
    held = running("abcdefg", computed=start)
    work = step(config(WIDE, WIDE_STATE, chunk_tokens=limit), held)
    assert aligned_chunk(work, held, start, 3, None) == tokens


def test_a_chunk_that_would_be_cut_is_refused() -> None:
    work = step(config(FULL, MAMBA, num_blocks=30, chunk_tokens=30), request("abcdefg"))
    take_choice(work, Admit("r0", 0, 0))
    refused(work, Compute("r0", 5), "r0 gets a chunk that the align split would cut")
    take_choice(work, Compute("r0", 6))


@given(st.integers(1, 12), st.integers(1, 9))
def test_chunks_lead_to_the_end_and_pass_the_last_block_that_a_hit_can_end_at(
    length: int, budget: int
) -> None:
    cfg = config(WIDE, WIDE_STATE, num_blocks=30, chunk_tokens=budget)
    held = running("abcdefghijkl"[:length], computed=0)
    work, ends = step(cfg, held), [0]
    while ends[-1] < length:
        tokens = aligned_chunk(work, held, ends[-1], min(length - ends[-1], budget), None)
        assert 0 < tokens <= budget
        ends.append(ends[-1] + tokens)
    assert (length - 1) // 4 * 4 in ends
    if budget <= 4:
        assert set(range(0, length, 4)) <= set(ends)


# Loads


def test_who_was_preempted_on_p_is_shortened_again_if_he_was_not() -> None:
    cluster = pair(FULL, MAMBA)
    work = SchedulerStep(cluster, both(on_prefill("abcd", preemptions=1)), "P")
    take_choice(work, Admit("r0", 0, 0))
    assert work.engine.request("r0").prompt == "abc"


# Blocks that do not fit, or that somebody else has


def test_an_engine_that_takes_more_than_was_predicted_dies_and_forgets_the_step() -> None:
    """A hit that is free costs a block. Where nobody counts it, the last block is not there."""
    uncounted = {"arithmetic.counts:blocks_from_queue": lambda new, _idle: new}
    cached, cfg = {(0, "ab"): 1}, config(FULL, num_blocks=4)
    other = running("x", (3,), computed=0, name="r1")
    work = step(cfg, request("abcdef"), other, cached=cached)
    with mistaken(uncounted):
        take_choice(work, Compute("r1", 1))
        take_choice(work, Admit("r0", 2, 0))
        take_choice(work, Compute("r0", 4))
    assert work.engine == work.begun._replace(
        dead=Death(message="2 blocks are taken and 1 are free")
    )
    assert (work.scheduled, work.admissions, work.allocations, work.pending) == ([], [], [], None)
    assert work.chose[-1] == Compute("r0", 4)


def test_a_recorded_choice_gets_the_blocks_that_it_says() -> None:
    held = running("abcd", (1,), computed=2, num_cached_blocks=(1,))
    work = step(config(FULL), held)
    take_choice(work, Compute("r0", 2, taken=((5,),)))
    assert work.engine.request("r0").tables == ((1, 5),)
    refused(step(config(FULL), held), Compute("r0", 2, taken=((1,),)), "which is not free")
    refused(step(config(FULL), held), Compute("r0", 2, taken=((5,), ())), "blocks in 2 groups")


# Preemption


NEEDY = running("abcdef", (1,), computed=2, num_cached_blocks=(1,))
VICTIM = running("wxyz", (2, 3), computed=4, name="r1", num_cached_blocks=(2,))


def test_a_token_that_is_under_way_is_kept_for_later() -> None:
    cfg = config(FULL, num_blocks=4, steps_in_flight=2)
    flying = {"steps": ((Flight("r1", 1, True),),), "pending": (("r1", 1),)}
    work = step(cfg, NEEDY, VICTIM, **flying)
    assert [f.fate for f in work.engine.flights("r1")] == [COUNTS]
    take_choice(work, Preempt("r1", "r0"))
    assert [f.fate for f in work.engine.flights("r1")] == [LATE]
    assert work.engine.pending == ()


# Letting go without a preemption


def test_what_a_step_in_flight_may_read_is_not_left_behind_yet() -> None:
    held = running("abcdefgh", (1, 2), (3, 4), computed=4)
    cfg = config(FULL, MAMBA, steps_in_flight=2)
    work = step(cfg, held, steps=((Flight("r0", 2, False),),))
    take_choice(work, Release("r0"))
    assert work.chose == [Release("r0", freed=((), ()))]


# A load has ended


def loading(status: str) -> SchedulerStep:
    """A step of D, which has a load with this status."""
    held = on_decode("abcd", (1, 2), status=status, num_cached_blocks=(0,), external=4, computed=4)
    return SchedulerStep(pair(FULL), both(None, held), "D")


def test_of_a_load_that_failed_nothing_is_left() -> None:
    work = loading("failed")
    take_choice(work, FinishLoad("r0"))
    assert work.engine.request("r0") == on_decode("abcd")
    assert work.engine.free == (2, 1, 3, 4, 5, 6, 7)
    assert work.engine.cached == ()
    assert work.chose == [FinishLoad("r0", freed=((2, 1),))]


def test_only_a_load_that_has_ended_is_taken_over() -> None:
    refused(loading("loading"), FinishLoad("r0"), "r0 is loading")


# The step goes to the worker, and its output arrives


def test_who_is_admitted_must_be_scheduled() -> None:
    work = step(config(FULL), request("abcd"))
    take_choice(work, Admit("r0", 0, 0))
    with pytest.raises(NotAllowed, match="r0 is admitted but not scheduled"):
        dispatch(work)


def test_no_more_drafts_are_right_than_were_computed() -> None:
    cfg = config(EAGLE, drafts=1)
    held = running("abcd", (1, 2, 3), computed=5, drafts=1, max_tokens=9)
    state = State((serving(held)._replace(step=(("r0", 2),)),))
    with pytest.raises(NotAllowed, match="2 drafts of r0 are accepted of 1"):
        step_output.complete(cluster(cfg, Job("r0", "abcd", 9)), state, "E", accepted={"r0": 2})
