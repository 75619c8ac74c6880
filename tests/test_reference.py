"""What the reference refuses: choices and ends that no state of it allows, as a trace may name
them.

What it does is counted and judged by the explorer, on every preset (`test_explorer`): a choice that
it makes otherwise gives another number of states, or breaks a check.
"""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproof.model import memory
from kvproof.model.config import EngineConfig, Group, Job
from kvproof.model.errors import NotAllowed
from kvproof.model.events import COUNT_MAX, Admit, Choice, Compute, FinishLoad
from kvproof.model.reference.blocks import prefix_hits
from kvproof.model.reference.blocks.kv_event_queue import report_spans
from kvproof.model.reference.scheduling import step_output
from kvproof.model.reference.scheduling.scheduler import dispatch, take_choice
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.reference.transfers import loads, offers, pull, request_ends
from kvproof.model.state import LATE, Engine, Flight, Request, State, Transfer
from tests.by_hand import (
    EAGLE,
    FULL,
    MAMBA,
    TOKENS,
    WINDOW,
    both,
    cached,
    cluster,
    config,
    on_decode,
    on_prefill,
    pair,
    request,
    running,
    serving,
    step,
)


@pytest.mark.parametrize(
    ("cfg", "held", "hit", "external", "why"),
    [
        (config(FULL, MAMBA), cached((2, 4), (2,)), 4, 0, "4 tokens does not hold in every group"),
        (config(FULL), cached((2, 4, 6, 8)), 8, 0, "8 tokens is not a whole number of blocks"),
        (config(FULL), cached((2, 4)), 3, 0, "3 tokens is not a whole number of blocks"),
        (config(FULL), cached((2, 4)), COUNT_MAX - 1, 0, "2147483646 tokens is not a whole number"),
        (config(FULL, MAMBA, role="decode"), cached((2, 4), (2,)), 6, 2, "does not hold in every"),
        (config(FULL, MAMBA, store=True), cached((2, 4), (2,)), 4, 2, "does not hold in every"),
    ],
)
def test_a_hit_that_is_not_there_is_refused(
    cfg: EngineConfig, held: Engine, hit: int, external: int, why: str
) -> None:
    with pytest.raises(NotAllowed, match=why):
        prefix_hits.look_up(cfg, held, TOKENS, hit, external)


FRESH = request("abcd")
HELD = running("abcd", (1,), computed=2, num_cached_blocks=(1,))
OTHER = request("xy", (1,), name="r1", status="running", computed=2)
ONE = config(FULL, max_requests=1)
LATE_TOKEN = ((Flight("r0", 1, True, LATE),),)


def of_decode(status: str) -> SchedulerStep:
    """A step of D, which has a load with this status."""
    held = on_decode("abcd", (1, 2), status=status, num_cached_blocks=(0,), external=4, computed=4)
    return SchedulerStep(pair(FULL), both(None, held), "D")


def after(work: SchedulerStep, *choices: Choice) -> SchedulerStep:
    """A step that has made these choices, which are allowed."""
    for choice in choices:
        take_choice(work, choice)
    return work


def of_two(*groups: Group) -> SchedulerStep:
    """A step of two requests with one block in common, which computes the first one's."""
    work = step(config(*groups), request("abc"), request("abx", name="r1"))
    return after(work, Admit("r0", 0, 0), Compute("r0", 2))


def aligned() -> SchedulerStep:
    """A step in which a request with a state is admitted."""
    cfg = config(FULL, MAMBA, num_blocks=30, chunk_tokens=30)
    return after(step(cfg, request("abcdefg")), Admit("r0", 0, 0))


@pytest.mark.parametrize(
    ("work", "choice", "why"),
    [
        (lambda: step(ONE, FRESH, OTHER), Admit("r0", 0, 0), r"max_requests \(1\) reached"),
        (
            lambda: step(ONE, request("abcd", (2,), computed=2), OTHER),
            Compute("r0", 2),
            r"max_requests \(1\) reached",
        ),
        (lambda: step(config(FULL), HELD), Admit("r0", 0, 0), "r0 is running"),
        (
            lambda: step(config(FULL), request("abcd", (1,), computed=2)),
            Admit("r0", 0, 0),
            "r0 is waiting",
        ),
        (
            lambda: step(config(FULL, steps_in_flight=2), FRESH, steps=LATE_TOKEN),
            Admit("r0", 0, 0),
            "has output pending",
        ),
        (lambda: step(config(FULL), FRESH), Admit("r0", 2, 0), "does not hold"),
        (lambda: of_two(FULL, MAMBA), Admit("r1", 2, 0), "a state that this step will write"),
        (aligned, Compute("r0", 5), "r0 gets a chunk that the align split would cut"),
        (lambda: of_decode("loading"), FinishLoad("r0"), "r0 is loading"),
    ],
)
def test_a_choice_of_a_step_is_refused(
    work: Callable[[], SchedulerStep], choice: Choice, why: str
) -> None:
    with pytest.raises(NotAllowed, match=why):
        take_choice(work(), choice)


def test_what_is_nearly_the_same_is_allowed() -> None:
    after(step(config(FULL, max_requests=2), FRESH, OTHER), Admit("r0", 0, 0))
    after(step(config(FULL), request("abcd", status="preempted")), Admit("r0", 0, 0))
    after(of_two(FULL), Admit("r1", 2, 0))
    after(aligned(), Compute("r0", 6))
    assert after(of_decode("failed"), FinishLoad("r0")).engine.request("r0") == on_decode("abcd")


def test_who_is_admitted_must_be_scheduled() -> None:
    with pytest.raises(NotAllowed, match="r0 is admitted but not scheduled"):
        dispatch(after(step(config(FULL), FRESH), Admit("r0", 0, 0)))


def test_no_more_drafts_are_right_than_were_computed() -> None:
    cfg = config(EAGLE, drafts=1)
    held = running("abcd", (1, 2, 3), computed=5, drafts=1, max_tokens=9)
    state = State((serving(held)._replace(step=(("r0", 2),)),))
    with pytest.raises(NotAllowed, match="2 drafts of r0 are accepted of 1"):
        step_output.complete(cluster(cfg, Job("r0", "abcd", 9)), state, "E", accepted={"r0": 2})


# Transfers

PAIR = pair(FULL)
OFFERED = Transfer("r0", "offered", 4, ((1, 2),))
SENT = on_prefill("abcd", (1, 2), status="sending", output=".", computed=4)
LOADS = on_decode("abcd", (3, 4), external=4, computed=4, status="loading")
ASKS = LOADS._replace(status="waiting")
READING = OFFERED._replace(phase="reading", local=((3, 4),), pairs=(((3, 4), (1, 2)),))
RELEASING = OFFERED._replace(phase="releasing")


@pytest.mark.parametrize(("hit", "external", "rest"), [(0, 3, 4), (2, 4, 2), (0, 0, 4)])
def test_all_that_is_offered_beyond_the_hit_is_loaded(hit: int, external: int, rest: int) -> None:
    asked = on_decode("abcd")
    offers.check_external(PAIR, both(None, asked, OFFERED), asked, Admit("r0", hit, rest))
    with pytest.raises(NotAllowed, match=f"loads {external} tokens where {rest} are offered"):
        offers.check_external(PAIR, both(None, asked, OFFERED), asked, Admit("r0", hit, external))


def test_nobody_loads_what_is_not_offered() -> None:
    with pytest.raises(NotAllowed, match="r0 loads but nothing is offered"):
        loads.start_load(PAIR, both(None, ASKS), "r0")


@pytest.mark.parametrize(
    ("on_p", "transfers", "why"),
    [
        (SENT, (), "has no transfer that could end"),
        (SENT, (OFFERED,), "has no transfer that could end"),
        (None, (Transfer("r0", "releasing", 0, ()),), "is not finished on P"),
    ],
)
def test_what_has_not_begun_cannot_end(
    on_p: Request | None, transfers: tuple[Transfer, ...], why: str
) -> None:
    with pytest.raises(NotAllowed, match=why):
        request_ends.transfer_done(PAIR, both(on_p, ASKS, *transfers), "r0")


@pytest.mark.parametrize(
    ("on_d", "transfers", "why"),
    [
        (LOADS, (READING,), "r0 has no lease that could end"),
        (LOADS, (RELEASING,), "r0 has no lease that could end"),
        (LOADS, (), "r0 has no lease that could end"),
        (ASKS, (OFFERED,), "r0 waits on D, which renews its lease"),
    ],
)
def test_only_a_lease_that_nobody_renews_ends(
    on_d: Request, transfers: tuple[Transfer, ...], why: str
) -> None:
    with pytest.raises(NotAllowed, match=why):
        pull.lease_expired(PAIR, both(SENT, on_d, *transfers), "r0")


# No preset has a table with two runs of cached blocks apart


@given(st.sets(st.integers(0, 12)), st.integers(0, 13))
def test_runs_name_every_cached_block_once_and_span_no_other(cached: set[int], end: int) -> None:
    inside = tuple(sorted(p for p in cached if p < end))
    spans = report_spans(range(end), inside)
    assert tuple(p for _, named in spans for p in named) == inside
    assert all(tuple(span) == named for span, named in spans)
    assert all(a.stop < b.start for (a, _), (b, _) in itertools.pairwise(spans))


# No preset of a Mamba group tells all of these apart


@pytest.mark.parametrize(
    ("group", "end", "tokens", "blocks"),
    [
        (FULL, 5, 1, (1, 2, 3)),
        (FULL, 4, 2, (1, 2)),
        (WINDOW, 5, 1, (2, 3)),
        (WINDOW, 8, 1, (3, 4)),
        (WINDOW, 7, 1, (3, 4)),
        (MAMBA, 5, 1, (2, 3)),
        (MAMBA, 6, 1, (3,)),
        (MAMBA, 8, 6, (1, 4)),
        (MAMBA, 2, 2, (1,)),
    ],
)
def test_blocks_that_a_step_reads_or_writes(
    group: Group, end: int, tokens: int, blocks: tuple[int, ...]
) -> None:
    held = running("abcdefgh", (1, 2, 3, 4), computed=end)
    assert memory.used(config(group), held, tokens) == blocks
