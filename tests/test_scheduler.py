"""What a scheduler step may choose for requests that begin or go on. What it may not is refused."""

import pytest

from kvproof.model.config import Group
from kvproof.model.events import Admit, Compute
from kvproof.model.reference.scheduling.scheduler import take_choice
from kvproof.model.state import LATE, Flight
from tests.by_hand import (
    FULL,
    MAMBA,
    config,
    refused,
    request,
    running,
    step,
)

WIDE, WIDE_STATE = Group("full", 4), Group("mamba", 4)
FRESH = request("abcd")


# Admission


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
