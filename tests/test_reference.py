"""What the reference refuses: choices and ends that no state of it allows, as a trace may name
them.

What it does is counted and judged by the explorer, on every preset (`test_explorer`): a choice that
it makes otherwise gives another number of states, or breaks a check.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproof.model import memory
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.errors import NotAllowed
from kvproof.model.events import COUNT_MAX, Admit, Choice, Compute, FinishLoad
from kvproof.model.reference.blocks import prefix_hits
from kvproof.model.reference.blocks.kv_event_queue import report_spans
from kvproof.model.reference.scheduling import step_output
from kvproof.model.reference.scheduling.scheduler import dispatch, take_choice
from kvproof.model.reference.scheduling.scheduler_step import SchedulerStep
from kvproof.model.reference.transfers import loads, offers, pull, request_ends
from kvproof.model.state import (
    LATE,
    NULL,
    WAITING,
    Block,
    Engine,
    Flight,
    Key,
    Request,
    State,
    Table,
    Transfer,
)

FULL, WINDOW, MAMBA = Group("full", 2), Group("window", 2, window=3), Group("mamba", 2)
TOKENS = "abcdefgh"


def pool_of(
    count: int = 6,
    *,
    held: Mapping[int, int] | None = None,
    cached: Mapping[Key, int] | None = None,
    free: Table | None = None,
    name: str = "E",
    **fields: Any,
) -> Engine:
    """An engine with `count` blocks. `held` are the references of blocks in use; all others are
    free, in the order of their ids or that of `free`. A block is cached under the prefix that ends
    with its last token: `cached={(0, "ab"): 1}` says that block 1 of group 0 has the first two
    tokens of "ab..."."""
    held, keys = held or {}, {block: key for key, block in (cached or {}).items()}
    blocks = (Block(refs=held.get(number, 0), key=keys.get(number)) for number in range(count))
    if free is None:
        free = tuple(b for b in range(1, count) if b not in held)
    entries = tuple((key, (block,)) for key, block in sorted((cached or {}).items()))
    memory = (None,) * count
    return Engine(name, blocks=tuple(blocks), free=free, cached=entries, memory=memory, **fields)


def cached(*lengths: tuple[int, ...]) -> Engine:
    """An engine where each group has the prefixes of TOKENS of these lengths cached, in blocks that
    are numbered from 1 on."""
    keys = [(group, TOKENS[:n]) for group, each in enumerate(lengths) for n in each]
    return pool_of(12, cached={key: number for number, key in enumerate(keys, 1)})


def request(prompt: str = "abcd", *tables: Table, name: str = "r0", **fields: Any) -> Request:
    """A request with these block tables, one a group."""
    fields = {"status": WAITING, "submitted_prompt_tokens": len(prompt), "max_tokens": 1} | fields
    return Request(name, prompt=prompt, tables=tables, **fields)


def running(prompt: str, *tables: tuple[int, ...], computed: int, **fields: Any) -> Request:
    """A request that runs and has computed so many tokens."""
    counted = fields.pop("num_cached_blocks", (0,) * len(tables))
    fields = {"status": "running", "computed": computed, "num_cached_blocks": counted} | fields
    return request(prompt, *tables, **fields)


on_prefill = partial(request, route="to_decode")
on_decode = partial(request, route="from_prefill")
"""A request of P, and one of D."""


def serving(*requests: Request, count: int = 8, **options: Any) -> Engine:
    """An engine with these requests, whose blocks have one reference for each place in a table.
    Those that run are in its running queue."""
    held = Counter(b for each in requests for table in each.tables for b in {*table} - {NULL})
    running = tuple(r.id for r in requests if r.status == "running")
    return pool_of(count, held=held, requests=requests, running=running, **options)


def config(*groups: Group, **options: Any) -> EngineConfig:
    """The configuration of an engine, by default with one group of full attention."""
    return EngineConfig("E", groups or (FULL,), **{"num_blocks": 8} | options)


PAIR = Cluster(
    "by hand",
    (EngineConfig("P", (FULL,), role="prefill"), EngineConfig("D", (FULL,), role="decode")),
    (Job("r0", "abcd", 2),),
)
"""P, which prefills, and D, which decodes."""


def both(p: Request | None = None, d: Request | None = None, *transfers: Transfer) -> State:
    """P and D with at most one request each."""
    engines = (serving(*[r for r in (each,) if r], name=n) for n, each in (("P", p), ("D", d)))
    return State(tuple(engines), transfers)


def step(cfg: EngineConfig, *requests: Request, **fields: Any) -> SchedulerStep:
    """A step in the making of an engine with these requests, one job each."""
    jobs = tuple(Job(r.id, r.prompt, r.max_tokens) for r in requests)
    state = State((serving(*requests, count=cfg.num_blocks, **fields),))
    return SchedulerStep(Cluster("by hand", (cfg,), jobs), state, "E")


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
    return SchedulerStep(PAIR, both(None, held), "D")


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
        (lambda: step(config(FULL), HELD), Compute("r0", 2, taken=((1,),)), "which is not free"),
        (
            lambda: step(config(FULL), HELD),
            Compute("r0", 2, taken=((5,), ())),
            "blocks in 2 groups",
        ),
        (
            lambda: step(config(FULL), HELD),
            Compute("r0", 2, taken=((4, 5),)),
            "takes 2 blocks in group 0 but needs 1",
        ),
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
    taken = after(step(config(FULL), HELD), Compute("r0", 2, taken=((5,),)))
    assert taken.engine.request("r0").tables == ((1, 5),)
    assert after(of_decode("failed"), FinishLoad("r0")).engine.request("r0") == on_decode("abcd")


def test_who_is_admitted_must_be_scheduled() -> None:
    with pytest.raises(NotAllowed, match="r0 is admitted but not scheduled"):
        dispatch(after(step(config(FULL), FRESH), Admit("r0", 0, 0)))


def test_no_more_drafts_are_right_than_were_computed() -> None:
    cfg = config(Group("full", 2, eagle=True), drafts=1)
    cluster = Cluster("by hand", (cfg,), (Job("r0", "abcd", 9),))
    held = running("abcd", (1, 2, 3), computed=5, drafts=1, max_tokens=9)
    state = State((serving(held)._replace(step=(("r0", 2),)),))
    with pytest.raises(NotAllowed, match="2 drafts of r0 are accepted of 1"):
        step_output.complete(cluster, state, "E", accepted={"r0": 2})


# Transfers

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
