"""How loads are taken over, how a step goes to the worker, and what its output changes."""

from typing import Any

import pytest

from kvproof.model.config import EngineConfig, Group, Job
from kvproof.model.errors import NotAllowed
from kvproof.model.events import Admit, Compute, FinishLoad
from kvproof.model.reference.blocks import pool
from kvproof.model.reference.scheduling import step_output
from kvproof.model.reference.scheduling.scheduler import dispatch, take_choice
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import Content, Death, Request, State
from kvproof.model.step import Allocation, Copy
from tests.by_hand import (
    EAGLE,
    FULL,
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

# A load has ended


def loaded(status: str = "loaded", **fields: Any) -> Request:
    counted = {"num_cached_blocks": (0,), "external": 4, "computed": 4}
    return on_decode("abcd", (1, 2), **{"status": status} | counted | fields)


def taken_over(held: Request) -> SchedulerStep:
    work = SchedulerStep(pair(FULL), both(None, held), "D")
    take_choice(work, FinishLoad("r0"))
    return work


def test_what_was_loaded_is_cached_and_the_last_token_is_computed_again() -> None:
    work = taken_over(loaded())
    held = work.engine.request("r0")
    assert (held.status, held.computed, held.num_cached_blocks) == ("waiting", 3, (2,))
    assert [prefix for (_, prefix), _ in work.engine.cached] == ["ab", "abcd"]
    assert work.chose == [FinishLoad("r0", freed=((),))]


def test_who_was_preempted_before_is_still_so() -> None:
    assert taken_over(loaded(preemptions=1)).engine.request("r0").status == "preempted"


def test_of_a_load_that_failed_nothing_is_left() -> None:
    work = taken_over(loaded("failed"))
    assert work.engine.request("r0") == on_decode("abcd")
    assert work.engine.free == (2, 1, 3, 4, 5, 6, 7)
    assert work.engine.cached == ()
    assert work.chose == [FinishLoad("r0", freed=((2, 1),))]


def test_only_a_load_that_has_ended_is_taken_over() -> None:
    work = SchedulerStep(pair(FULL), both(None, loaded("loading")), "D")
    refused(work, FinishLoad("r0"), "r0 is loading")


def test_an_engine_that_hashes_a_loaded_block_twice_dies() -> None:
    state = both(None, loaded())
    engine = pool.register(state.engine("D"), (0, "ab"), 1)
    work = SchedulerStep(pair(FULL), state.with_engine(engine), "D")
    work.scheduled = [("r1", 1)]
    take_choice(work, FinishLoad("r0"))
    assert work.engine == work.begun._replace(dead=Death(message="block 1 is to be hashed twice"))
    assert (work.chose, work.scheduled) == ([FinishLoad("r0")], [])


def test_p_may_ask_again_for_one_token_that_it_would_compute() -> None:
    follows = (Job("r0", "a"), Job("r1", "a", follows="r0"))
    turns = pair(FULL, follow_up_turns=True, jobs=follows)
    held = on_prefill("a", (1,), name="r1", status="loaded", computed=1, num_cached_blocks=(0,))
    for asked, status, computed in (0, "loading", 1), (1, "waiting", 0):
        work = SchedulerStep(turns, both(held._replace(external=asked)), "P")
        take_choice(work, FinishLoad("r1"))
        after = work.engine.request("r1")
        assert (after.status, after.computed) == (status, computed)
        assert work.allocations == ([] if asked else [Allocation("P", "r1", 0, 0)])


# The step goes to the worker


def test_a_step_that_chose_nothing_is_none() -> None:
    state, effects = dispatch(step(config(FULL), request("abcd")))
    assert state.engine("E").step is None
    assert effects == type(effects)(places=(), zeroed=())


def test_who_is_admitted_must_be_scheduled() -> None:
    work = step(config(FULL), request("abcd"))
    take_choice(work, Admit("r0", 0, 0))
    with pytest.raises(NotAllowed, match="r0 is admitted but not scheduled"):
        dispatch(work)


def test_the_worker_computes_what_was_scheduled() -> None:
    work = step(config(FULL), request("abcd"))
    take_choice(work, Admit("r0", 0, 0))
    take_choice(work, Compute("r0", 3))
    state, effects = dispatch(work)
    engine = state.engine("E")
    assert engine.step == (("r0", 3),)
    assert engine.steps == ()
    assert engine.memory[1:3] == (Content(0, ("a", "ab")), Content(0, ("abc", "")))
    assert [read.expected for read in effects.reads] == ["a", "ab", "abc"]
    assert [a.request for a in effects.admissions] == ["r0"]
    assert [(a.predicted, a.taken) for a in effects.allocations] == [(2, 2)]


def test_where_steps_overlap_it_is_in_flight() -> None:
    work = step(config(FULL, steps_in_flight=2), running("abcd", (1, 2), computed=3))
    take_choice(work, Compute("r0", 1))
    engine = dispatch(work)[0].engine("E")
    assert engine.step is None
    assert [[f.request for f in each] for each in engine.steps] == [["r0"]]


def test_what_waits_for_the_step_ahead_is_not_run_yet() -> None:
    """Which drafts are right is known when the step ahead has ended."""
    cfg = config(EAGLE, drafts=1, steps_in_flight=2)
    held = running("abcd", (1, 2, 3), computed=4, max_tokens=9)
    work = step(cfg, held, pending=(("r0", 1),))
    take_choice(work, Compute("r0", 1))
    assert dispatch(work)[1].reads == ()


def test_what_a_store_brings_is_there_before_the_step_runs() -> None:
    work = step(config(FULL, store=True), request("abcd"), stored=("ab",))
    take_choice(work, Admit("r0", 0, 2))
    take_choice(work, Compute("r0", 2))
    state, effects = dispatch(work)
    assert state.engine("E").memory[1] == Content(0, ("a", "ab"))
    assert all(read.found == read.expected for read in effects.reads)


def test_copies_are_handed_to_the_worker_and_are_over() -> None:
    cfg = config(Group("full", 4), Group("mamba", 4), match_unit=2, num_blocks=12)
    cached = {(0, "ab"): 1, (1, "ab"): 2}
    work = step(cfg, request("abcd"), cached=cached)
    take_choice(work, Admit("r0", 2, 0))
    take_choice(work, Compute("r0", 2))
    state, effects = dispatch(work)
    assert effects.copies == (Copy("E", 1, 3), Copy("E", 2, 4))
    assert state.engine("E").copies == ()


# The output arrives


def completed(
    cfg: EngineConfig, held: Request, tokens: int, accepted: int = 0, **options: Any
) -> State:
    job = Job("r0", held.prompt, held.max_tokens, parts=options.pop("parts", ()))
    made = cluster(cfg, job, **options)
    state = State((serving(held, count=cfg.num_blocks)._replace(step=(("r0", tokens),)),))
    return step_output.complete(made, state, "E", accepted={"r0": accepted} if accepted else {})


def test_who_has_computed_all_it_knows_samples_a_token() -> None:
    state = completed(config(FULL), running("abcd", (1, 2), computed=4, max_tokens=2), 4)
    assert state.engine("E").request("r0").output == "."
    assert state.engine("E").step is None


def test_who_is_still_in_its_prompt_samples_nothing() -> None:
    state = completed(config(FULL), running("abcd", (1, 2), computed=3), 3)
    assert state.engine("E").request("r0").output == ""


def test_the_last_token_ends_the_request() -> None:
    state = completed(config(FULL), running("abcd", (1, 2), computed=4), 4)
    assert state.engine("E").requests == ()
    assert state.engine("E").free == (2, 1, 3, 4, 5, 6, 7)
    assert state.ended == (("E", "r0"),)


def test_a_session_waits_for_its_next_part() -> None:
    held = running("abcd", (1, 2), computed=4)
    state = completed(config(FULL), held, 4, parts=("ef",), sessions=True)
    assert state.engine("E").request("r0").status == "paused"
    assert state.ended == ()


@pytest.mark.parametrize(("right", "output", "computed"), [(0, ".", 4), (1, "..", 5)])
def test_drafts_that_were_right_have_become_tokens(right: int, output: str, computed: int) -> None:
    held = running("abcd", (1, 2, 3), computed=5, drafts=1, max_tokens=9)
    state = completed(config(EAGLE, drafts=1), held, 2, right)
    after = state.engine("E").request("r0")
    assert (after.output, after.computed, after.drafts) == (output, computed, 1)


def test_a_store_keeps_what_was_computed_and_no_drafts() -> None:
    held = running("abcd", (1, 2, 3), computed=6, drafts=2, max_tokens=9)
    state = completed(config(EAGLE, drafts=2, store=True), held, 3)
    assert state.engine("E").stored == ("ab", "abcd")


def test_a_store_keeps_what_is_computed_inside_a_prompt_too() -> None:
    cfg = config(FULL, store=True)
    ended = completed(cfg, running("abcd", (1, 2), computed=4, max_tokens=2), 4)
    assert ended.engine("E").stored == ("ab", "abcd")
    inside = completed(cfg, running("abcdef", (1, 2), computed=4), 4)
    assert inside.engine("E").stored == ("ab", "abcd")


def test_no_more_drafts_are_right_than_were_computed() -> None:
    held = running("abcd", (1, 2, 3), computed=5, drafts=1, max_tokens=9)
    with pytest.raises(NotAllowed, match="2 drafts of r0 are accepted of 1"):
        completed(config(EAGLE, drafts=1), held, 2, 2)


def test_there_is_no_output_without_a_step() -> None:
    with pytest.raises(NotAllowed, match="engine E has no step in flight"):
        step_output.complete(cluster(config(FULL)), State((serving(),)), "E")


def test_everyone_in_the_step_gets_its_token() -> None:
    one, other = (running("ab", (n,), computed=2, max_tokens=2, name=f"r{n}") for n in (1, 2))
    prefills = running("abcd", (3,), computed=2, name="r0")
    made = cluster(config(FULL), *(Job(f"r{n}", "ab", 2) for n in range(3)))
    begun = serving(prefills, one, other)._replace(step=(("r0", 2), ("r1", 2), ("r2", 2)))
    state = step_output.complete(made, State((begun,)), "E")
    assert [r.output for r in state.engine("E").requests] == ["", ".", "."]
