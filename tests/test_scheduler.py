"""What a scheduler step may choose for requests that begin or go on. What it may not is refused."""

import pytest

from kvproof.model.config import Group, Job
from kvproof.model.events import Admit, Compute
from kvproof.model.reference.scheduling.scheduler import take_choice
from kvproof.model.state import LATE, Flight
from kvproof.model.step import Allocation
from tests.by_hand import (
    EAGLE,
    FULL,
    MAMBA,
    WINDOW,
    config,
    refused,
    request,
    running,
    step,
)

WIDE, WIDE_STATE = Group("full", 4), Group("mamba", 4)
FRESH = request("abcd")


# Admission


def test_an_admission_is_noted_with_the_cache_that_it_looked_up() -> None:
    cached = {(0, "ab"): 1}
    work = step(config(FULL), FRESH, cached=cached)
    take_choice(work, Admit("r0", 2, 0))
    (admission,) = work.admissions
    assert admission[:6] == ("E", "r0", "abcd", "local", 2, 0)
    assert admission.cached == (((0, "ab"), (1,)),)
    assert work.chose == [Admit("r0", 2, 0)]


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


def test_a_state_that_was_there_before_is_a_hit() -> None:
    cached = {(0, "ab"): 1, (1, "ab"): 2}
    take_choice(step(config(FULL, MAMBA), FRESH, cached=cached), Admit("r0", 2, 0))


def test_a_block_that_this_step_is_to_fill_cannot_be_copied_in_it() -> None:
    cfg = config(WIDE, WIDE_STATE, match_unit=2, num_blocks=20)
    first = running("abcdefx", (1, 2), (3, 4), computed=4, num_cached_blocks=(1, 1))
    second = request("abcdefgh", name="r1")
    cached = {(0, "abcd"): 1, (0, "abcdef"): 2, (1, "abcd"): 3, (1, "abcdef"): 5}
    take_choice(step(cfg, first, second, cached=cached), Admit("r1", 6, 0))
    work = step(cfg, first, second, cached=cached)
    take_choice(work, Compute("r0", 2))
    refused(work, Admit("r1", 6, 0), "inside a block that this step will fill")
    step_to_block_end = step(cfg, first, second, cached=cached)
    take_choice(step_to_block_end, Compute("r0", 2))
    take_choice(step_to_block_end, Admit("r1", 4, 0))


# Computing


def test_who_goes_on_takes_what_it_lacks_and_caches_what_it_fills() -> None:
    work = step(config(FULL), running("abcdef", (1,), computed=2, num_cached_blocks=(1,)))
    take_choice(work, Compute("r0", 4))
    after = work.engine.request("r0")
    assert (after.tables, after.computed, after.num_cached_blocks) == (((1, 2, 3),), 6, (3,))
    assert [prefix for (_, prefix), _ in work.engine.cached] == ["abcd", "abcdef"]
    assert work.scheduled == [("r0", 4)]
    assert work.budget == 4
    assert work.chose == [Compute("r0", 4, taken=((2, 3),), freed=((),))]
    assert work.allocations == [Allocation("E", "r0", 2, 2)]


def test_what_is_left_behind_is_let_go_before_blocks_are_taken() -> None:
    held = running("abcdefgh", (1, 2, 3), (4, 5, 6), computed=6, num_cached_blocks=(3, 3))
    work = step(config(FULL, WINDOW), held, count=8)
    take_choice(work, Compute("r0", 2))
    assert work.chose == [Compute("r0", 2, taken=((5,), (4,)), freed=((), (5, 4)))]


def test_who_was_admitted_gets_his_hit_and_runs_behind_the_others() -> None:
    other = running("xy", (3,), computed=2, name="r1")
    work = step(config(FULL), FRESH, other, cached={(0, "ab"): 1})
    take_choice(work, Admit("r0", 2, 0))
    take_choice(work, Compute("r0", 2))
    assert work.engine.running == ("r1", "r0")
    assert work.engine.request("r0").status == "running"
    assert work.chose == [
        Admit("r0", 2, 0, hit=((1,),), taken=((),)),
        Compute("r0", 2, ((2,),), ((),)),
    ]
    assert work.pending is None


def test_who_goes_on_keeps_his_place() -> None:
    one, two = running("abcd", (1,), computed=2), running("abcd", (2,), computed=2, name="r1")
    work = step(config(FULL), one, two)
    take_choice(work, Compute("r0", 1))
    assert work.engine.running == ("r0", "r1")


def test_who_begins_with_one_token_left_may_be_filled_up_with_drafts() -> None:
    cfg, cached = config(FULL, drafts=2), {(0, "ab"): 1}
    work = step(cfg, request("abc"), cached=cached)
    take_choice(work, Admit("r0", 2, 0))
    take_choice(work, Compute("r0", 3))
    take_choice(
        step(cfg, request("abc", (1,), computed=2, num_cached_blocks=(1,))), Compute("r0", 3)
    )
    held = running("abc", (1,), computed=2, num_cached_blocks=(1,))
    refused(step(cfg, held), Compute("r0", 3), "3 tokens and may get at most 1")


def test_drafts_that_are_not_computed_are_lost() -> None:
    held = running("abc", (1, 2), computed=2, drafts=2, num_cached_blocks=(1,))
    work = step(config(EAGLE, drafts=2, num_blocks=12), held)
    take_choice(work, Compute("r0", 2))
    assert work.engine.request("r0").drafts == 1


def test_drafts_are_computed_and_not_cached() -> None:
    held = running("abc", (1, 2), computed=2, drafts=2, num_cached_blocks=(1,))
    work = step(config(EAGLE, drafts=2, num_blocks=12), held)
    take_choice(work, Compute("r0", 3))
    after = work.engine.request("r0")
    assert (after.computed, after.drafts) == (5, 2)
    assert work.engine.cached == ()


@pytest.mark.parametrize("tokens", [0, 5])
def test_no_more_tokens_than_are_known_and_at_least_one(tokens: int) -> None:
    held = running("abcdef", (1,), computed=2)
    refused(
        step(config(FULL), held), Compute("r0", tokens), f"{tokens} tokens and may get at most 4"
    )
    take_choice(step(config(FULL), held), Compute("r0", 4))


def test_no_more_tokens_than_the_budget_has_left() -> None:
    one, two = running("abcd", (1,), computed=2), running("abcd", (2,), computed=2, name="r1")
    work = step(config(FULL, chunk_tokens=3), one, two)
    take_choice(work, Compute("r0", 2))
    refused(work, Compute("r1", 2), "2 tokens and may get at most 1")
    take_choice(work, Compute("r1", 1))


def test_nobody_is_scheduled_twice() -> None:
    work = step(config(FULL), running("abcdef", (1,), computed=2))
    take_choice(work, Compute("r0", 2))
    refused(work, Compute("r0", 2), "scheduled twice")


@pytest.mark.parametrize("status", ["loading", "loaded", "failed", "paused"])
def test_who_waits_for_something_else_is_not_scheduled(status: str) -> None:
    held = request("abcd", (1,), status=status, computed=2)
    refused(step(config(FULL), held), Compute("r0", 2), f"r0 is {status} and cannot be scheduled")


def test_who_was_not_admitted_is_not_scheduled() -> None:
    refused(step(config(FULL), FRESH), Compute("r0", 2), "r0 is waiting and cannot be scheduled")


# Who comes first


def test_a_lower_number_comes_first_and_then_who_came_first() -> None:
    jobs = (Job("r0", "a", priority=1), Job("r1", "a"), Job("r2", "a", priority=1))
    requests = [request("a", name=f"r{n}") for n in range(3)]
    work = step(config(FULL, policy="priority"), *requests, jobs=jobs)
    assert sorted(["r0", "r1", "r2"], key=work.rank) == ["r1", "r0", "r2"]
