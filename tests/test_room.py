"""Whom a step must serve, where a running request before it lacks blocks."""

import pytest
from msgspec.structs import replace

from kvproof.invariants.check import broken
from kvproof.invariants.registry import INVARIANTS
from kvproof.model.config import Job
from kvproof.model.events import Schedule, Submit
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import COUNTS, RUNNING, Block, Engine, Flight, Request, State
from kvproof.model.step import Effects, Step

STORE = CLUSTERS["store-async"]
ROOM = INVARIANTS["room_is_used"]

FILLS = Request("r0", RUNNING, "aaaa", 4, 2, computed=4, tables=((1, 2),))
"""It needs another block for its next token."""
FITS = Request("r1", RUNNING, "a", 1, 2, computed=1, tables=((3,),))
"""It has a slot for its next token."""


MAY_BE_DONE = Request("r2", RUNNING, "aaaa", 4, 2, computed=5, tables=((1, 2),))
"""Its next token is its last if a draft is accepted. It has no slot for the one after."""


def passed_over(
    *queue: Request,
    free: tuple[int, ...] = (),
    before: tuple[int, ...] | None = None,
    pending: int = 1,
) -> list[str | None]:
    """Whom a step that schedules nothing passes over without a reason. Each request has so many
    `pending` tokens."""
    flights = tuple(Flight(each.id, each.computed, True, COUNTS) for each in queue)
    names = tuple(each.id for each in queue)
    engine = Engine(
        "E",
        (Block(),) * 5,
        free,
        requests=queue,
        running=names,
        steps=(flights,),
        pending=tuple((name, pending) for name in names),
    )
    begins = engine if before is None else engine._replace(free=before)
    step = Step(State((begins,)), Schedule("E", ()), Effects(), State((engine,)))
    return [found.about.request for found in broken(STORE, step, [ROOM])]


def test_a_running_request_without_blocks_ends_the_step() -> None:
    assert passed_over(FILLS, FITS) == []


def test_who_comes_before_it_is_served() -> None:
    assert passed_over(FITS, FILLS) == ["r1"]


def test_with_blocks_all_are_served() -> None:
    assert passed_over(FILLS, FITS, free=(4,)) == ["r0", "r1"]


def test_a_block_that_a_step_gives_back_comes_too_late() -> None:
    """A failed load gives its blocks back after the running requests had their turn."""
    assert passed_over(FILLS, FITS, free=(4,), before=()) == []


def test_a_request_that_may_be_done_may_be_served_or_not() -> None:
    """vLLM stops only at a request that is done even if all drafts of a step are rejected."""
    fits = FITS._replace(max_tokens=4, tables=((3, 4),))
    assert passed_over(MAY_BE_DONE, fits, pending=2) == []
    assert passed_over(MAY_BE_DONE, fits, pending=2, free=(0,)) == ["r1"]


@pytest.mark.live
def test_vllm_preempts_nobody_whose_blocks_a_step_in_flight_uses() -> None:
    from kvproof.live.machine import LiveMachine

    jobs = Job("r0", "aaaa", 2), Job("r1", "a", 1), Job("r2", "a", 2)
    machine = LiveMachine(replace(STORE, jobs=jobs))
    for name in ("r0", "r1", "r2"):
        machine.take(Submit("E", name))
    machine.take(Schedule("E"))
    step = machine.take(Schedule("E"))
    assert step.event == Schedule("E", ())
    assert [*broken(machine.cluster, step, [ROOM])] == []
