"""The blocks of a scheduler's choice: for loads and for computing, those that come first or those
that a recorded choice took. An engine whose blocks were predicted wrongly dies."""

from kvproof.model.events import Admit, Compute
from kvproof.model.reference.scheduling.scheduler import take_choice
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.state import Death
from tests.by_hand import (
    FULL,
    MAMBA,
    both,
    config,
    on_prefill,
    pair,
    refused,
    request,
    running,
    step,
)
from tests.planted import mistaken

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
