"""Who may lose his blocks to whom, and what is left of him."""

from kvproof.model.config import Job
from kvproof.model.events import Compute, Preempt, Release
from kvproof.model.reference.scheduling.scheduler import take_choice
from kvproof.model.state import COUNTS, LATE, Flight
from tests.by_hand import (
    FULL,
    MAMBA,
    config,
    refused,
    request,
    running,
    step,
)

TIGHT = config(FULL, num_blocks=4)
NEEDY = running("abcdef", (1,), computed=2, num_cached_blocks=(1,))
VICTIM = running("wxyz", (2, 3), computed=4, name="r1", num_cached_blocks=(2,))


def test_the_victim_starts_over_and_its_blocks_come_free_tail_first() -> None:
    work = step(TIGHT, NEEDY, VICTIM)
    take_choice(work, Preempt("r1", "r0"))
    assert work.engine.request("r1") == request(
        "wxyz", name="r1", status="preempted", preemptions=1
    )
    assert work.engine.free == (3, 2)
    assert work.engine.running == ("r0",)
    assert work.chose == [Preempt("r1", "r0", freed=((3, 2),))]
    take_choice(work, Compute("r0", 4))


def test_a_request_may_give_way_itself() -> None:
    work = step(TIGHT, NEEDY, VICTIM)
    take_choice(work, Preempt("r0", "r0"))
    assert work.engine.request("r0").status == "preempted"


def test_who_waits_or_is_scheduled_already_is_not_preempted() -> None:
    waits = VICTIM._replace(status="waiting")
    refused(step(TIGHT, NEEDY, waits), Preempt("r1", "r0"), "r1 is preempted but is not idle")
    goes_on = VICTIM._replace(prompt="wxyzu", submitted_prompt_tokens=5, tables=((2, 3, 4),))
    work = step(config(FULL, num_blocks=5), NEEDY, goes_on)
    take_choice(work, Compute("r1", 1))
    refused(work, Preempt("r1", "r0"), "r1 is preempted but is not idle")


def test_by_priority_who_is_scheduled_is_taken_out_of_the_step() -> None:
    cfg = config(FULL, num_blocks=6, policy="priority")
    goes_on = running("wxyzuv", (2, 3), computed=3, name="r1", num_cached_blocks=(1,))
    jobs = (Job("r0", "abcdef"), Job("r1", "wxyzuv", priority=1))
    needy = NEEDY._replace(prompt="abcdefgh")
    work = step(cfg, needy, goes_on, jobs=jobs, cached={(0, "wx"): 2})
    take_choice(work, Compute("r1", 3))
    assert work.engine.blocks_for((0, "wxyz")) == (3,)
    take_choice(work, Preempt("r1", "r0"))
    assert work.scheduled == []
    assert work.budget == cfg.chunk_tokens
    assert work.engine.cached == (((0, "wx"), (2,)),)


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
