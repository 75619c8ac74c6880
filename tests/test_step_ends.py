"""How loads are taken over, how a step goes to the worker, and what its output changes."""

from typing import Any

import pytest

from kvproof.model.config import EngineConfig, Job
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Admit, FinishLoad
from kvproof.model.reference.scheduling import step_output
from kvproof.model.reference.scheduling.scheduler import dispatch, take_choice
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import Request, State
from tests.by_hand import (
    EAGLE,
    FULL,
    both,
    cluster,
    config,
    on_decode,
    pair,
    refused,
    request,
    running,
    serving,
    step,
)

# A load has ended


def loaded(status: str = "loaded", **fields: Any) -> Request:
    counted = {"num_cached_blocks": (0,), "external": 4, "computed": 4}
    return on_decode("abcd", (1, 2), **{"status": status} | counted | fields)


def taken_over(held: Request) -> SchedulerStep:
    work = SchedulerStep(pair(FULL), both(None, held), "D")
    take_choice(work, FinishLoad("r0"))
    return work


def test_of_a_load_that_failed_nothing_is_left() -> None:
    work = taken_over(loaded("failed"))
    assert work.engine.request("r0") == on_decode("abcd")
    assert work.engine.free == (2, 1, 3, 4, 5, 6, 7)
    assert work.engine.cached == ()
    assert work.chose == [FinishLoad("r0", freed=((2, 1),))]


def test_only_a_load_that_has_ended_is_taken_over() -> None:
    work = SchedulerStep(pair(FULL), both(None, loaded("loading")), "D")
    refused(work, FinishLoad("r0"), "r0 is loading")


# The step goes to the worker


def test_who_is_admitted_must_be_scheduled() -> None:
    work = step(config(FULL), request("abcd"))
    take_choice(work, Admit("r0", 0, 0))
    with pytest.raises(NotAllowed, match="r0 is admitted but not scheduled"):
        dispatch(work)


# The output arrives


def completed(
    cfg: EngineConfig, held: Request, tokens: int, accepted: int = 0, **options: Any
) -> State:
    job = Job("r0", held.prompt, held.max_tokens, parts=options.pop("parts", ()))
    made = cluster(cfg, job, **options)
    state = State((serving(held, count=cfg.num_blocks)._replace(step=(("r0", tokens),)),))
    return step_output.complete(made, state, "E", accepted={"r0": accepted} if accepted else {})


def test_no_more_drafts_are_right_than_were_computed() -> None:
    held = running("abcd", (1, 2, 3), computed=5, drafts=1, max_tokens=9)
    with pytest.raises(NotAllowed, match="2 drafts of r0 are accepted of 1"):
        completed(config(EAGLE, drafts=1), held, 2, 2)
