"""Checks asked of steps and states that are made by hand: what each says, and what it excuses."""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from kvproof.invariants.blocks import uncached_blocks_are_reused_at_once
from kvproof.invariants.check import broken
from kvproof.invariants.layouts import new_blocks_have_no_old_values
from kvproof.invariants.loop import (
    call_is_answered_once,
    idle_engine_has_no_waiting_request,
    pause_computes_nothing,
)
from kvproof.invariants.parties import blocks_filled
from kvproof.invariants.registry import GUARDS, INVARIANTS
from kvproof.invariants.startup import needed_blocks_are_enough
from kvproof.invariants.statistics import (
    metrics_add_up,
    prompt_statistics_add_up,
    statistics_count_once,
)
from kvproof.live.known.caching import shrunk_hit_is_not_matched_again
from kvproof.model import termination
from kvproof.model.because import About, Judged
from kvproof.model.config import Cluster, EngineConfig, Group, Job
from kvproof.model.events import (
    EVENTS,
    Admit,
    Choice,
    Complete,
    Compute,
    Event,
    Preempt,
    ResetPrefixCache,
    Schedule,
)
from kvproof.model.facts.connectors import CacheStatistics, PromptReported, ResetAnswered
from kvproof.model.facts.loop import Call, Did, Exported, LoopWait, Played
from kvproof.model.facts.startup import (
    LoneRequest,
    Pages,
    StartedGroup,
    StartedWorker,
    Startup,
    TakenBlock,
)
from kvproof.model.phases import Phase
from kvproof.model.plans.engine import EnginePlan, Layer, given
from kvproof.model.presets import CLUSTERS
from kvproof.model.state import (
    COUNTS,
    LOADING,
    PREEMPTED,
    RUNNING,
    SENDING,
    WAITING,
    Block,
    Engine,
    Flight,
    Request,
    State,
    Transfer,
)
from kvproof.model.step import Admission, Effects, Kept, Step
from tests.reasons import alone
from tests.watching import Observed


def kinds_of(judged: Iterable[Judged]) -> list[list[str]]:
    """For each break, the kinds of its excuses."""
    return [[excuse.kind for excuse in each.excuses] for each in judged if each.reasons]


# An answer that ends among accepted drafts while a later step is under way


DRAFTING = CLUSTERS["turns-drafts"]
NAME = DRAFTING.decode.name
WAS = Request("r", RUNNING, "a" * 15, 15, 3, output=".", computed=21)
"""The first of three tokens is there; steps of 3 tokens each end at 18 and at 21."""


def ended(computed: int) -> Step:
    """Both drafts of the older step are accepted: its third token is one too many."""
    older = (Flight("r", 3, True, ahead=2, drafts=2),)
    later = (Flight("r", 3, True, ahead=2, drafts=2),)
    now = WAS._replace(status=SENDING, output="...", computed=computed)
    before = Engine(NAME, (), (), requests=(WAS,), steps=(older, later))
    after = Engine(NAME, (), (), requests=(now,), steps=(later,))
    return alone(before, Complete(NAME, {"r": 2}), after)


@pytest.mark.parametrize("computed", range(15, 23))
def test_three_numbers_are_permitted(computed: int) -> None:
    guard = GUARDS["computed_tokens_are_those_scheduled"]
    found = list(broken(DRAFTING, ended(computed), [guard]))
    assert bool(found) is (computed not in (17, 20, 21))


# Which of the free blocks is taken next


FULL = (Group("full", 2),)
TWO_ENGINES = Cluster(
    "c", (EngineConfig("E", FULL, 8, "prefill"), EngineConfig("D", FULL, 8, "decode"))
)
BLOCKS = (Block(0),) * 8


def complaints(*chose: Compute | Preempt, engine: str = "E") -> int:
    """Block 4 is freed behind block 7, which was free before this step."""
    before, after = (Engine("E", BLOCKS, free) for free in ((7,), (7, 4)))
    step = alone(before, Schedule(engine, chose=chose), after)
    return len([*broken(TWO_ENGINES, step, [uncached_blocks_are_reused_at_once])])


def test_a_block_that_is_freed_behind_an_older_one_is_named() -> None:
    assert complaints() == 1


def test_a_block_that_was_taken_and_freed_again_is_not_older() -> None:
    """vLLM may schedule a request and preempt it in the same step."""
    assert complaints(Compute("r1", 4, taken=((7,),)), Preempt("r1", "r2")) == 0
    assert complaints(Compute("r1", 4, taken=((6,),)), Preempt("r1", "r2")) == 1
    assert complaints(Compute("r1", 4, taken=((7,),)), engine="D") == 1


# Whom a step must serve, where a running request before it lacks blocks


STORE = CLUSTERS["store-async"]
ROOM = INVARIANTS["room_is_used"]

FILLS = Request("r0", RUNNING, "aaaa", 4, 2, computed=4, tables=((1, 2),))
"""It needs another block for its next token."""
FITS = Request("r1", RUNNING, "a", 1, 2, computed=1, tables=((3,),))
"""It has a slot for its next token."""


MAY_BE_DONE = Request("r2", RUNNING, "aaaa", 4, 2, computed=5, tables=((1, 2),))
"""Its next token is its last if a draft is accepted. It has no slot for the one after."""


def excuses(
    *requests: Request,
    free: tuple[int, ...] = (),
    before: tuple[int, ...] | None = None,
    pending: int = 1,
    chose: tuple[Choice, ...] = (),
) -> dict[str, list[str]]:
    """Whom a step with these choices passes over, with the kinds of its excuses. Each running
    request has so many `pending` tokens."""
    names = tuple(each.id for each in requests if each.status == RUNNING)
    flights = tuple(Flight(each.id, each.computed, True, COUNTS) for each in requests)
    engine = Engine(
        "E",
        (Block(),) * 5,
        free,
        requests=requests,
        running=names,
        steps=(flights,),
        pending=tuple((name, pending) for name in names),
    )
    begins = engine if before is None else engine._replace(free=before)
    step = alone(begins, Schedule("E", chose), engine)
    found = [each for each in ROOM.of_step(STORE, step) if each.reasons]
    return {each.about.request: [excuse.kind for excuse in each.excuses] for each in found}


def passed_over(*requests: Request, **of_step: Any) -> list[str]:
    """Whom a step passes over without a reason."""
    return [name for name, kinds in excuses(*requests, **of_step).items() if not kinds]


@pytest.mark.parametrize(
    ("requests", "of_step", "late"),
    [
        ((FILLS, FITS), {}, []),  # a running request without blocks ends the step
        ((FITS, FILLS), {}, ["r1"]),
        ((FILLS, FITS), {"free": (4,)}, ["r0", "r1"]),
        ((FILLS, FITS), {"free": (4,), "before": ()}, []),  # a failed load gives it back too late
    ],
)
def test_with_blocks_all_are_served_in_order(
    requests: tuple[Request, ...], of_step: dict[str, Any], late: list[str]
) -> None:
    assert passed_over(*requests, **of_step) == late


def test_a_request_that_may_be_done_may_be_served_or_not() -> None:
    """vLLM stops only at a request that is done even if all drafts of a step are rejected."""
    fits = FITS._replace(max_tokens=4, tables=((3, 4),))
    assert passed_over(MAY_BE_DONE, fits, pending=2) == []
    assert passed_over(MAY_BE_DONE, fits, pending=2, free=(0,)) == ["r1"]


def test_who_gives_up_its_own_blocks_excuses_only_whom_it_stands_in_front_of() -> None:
    last = FITS._replace(id="r2", tables=((4,),))
    alone = (Preempt("r0", "r0"),)
    assert excuses(FILLS, FITS, chose=alone, free=(1, 2)) == {"r1": ["release"]}
    assert excuses(FITS, FILLS, last, chose=alone, free=(1, 2)) == {"r1": [], "r2": ["release"]}


def test_who_waits_may_be_left_to_the_next_step_after_a_preemption() -> None:
    waits = Request("r1", WAITING, "a", 1, 1)
    assert passed_over(waits, free=(1, 2, 3)) == ["r1"]
    preempts = (Preempt("r0", "r2"),)
    assert excuses(waits, chose=preempts, free=(1, 2, 3)) == {"r1": ["choice"]}
    longer = waits._replace(max_tokens=2)
    assert excuses(longer, free=(1,)) == {"r1": ["choice"]}, "it may need a second block"
    assert excuses(waits) == {}, "there is no block for it"


# Who is excused where a read is lost


def beside_a_lost_read(free: int, status: str = WAITING) -> State:
    """D with a load of two tokens whose end never comes, in a block, and a request of two."""
    lost = Request("r0", LOADING, "ab", 2, 1, tables=((1,),))
    other = Request("r1", status, "xy", 2, 1)
    blocks = (Block(),) * (free + 2)
    engine = Engine("D", blocks, tuple(range(2, free + 2)), requests=(lost, other))
    return State((engine,), (Transfer("r0", Phase.LOST, 2, ((1,),)),))


@pytest.mark.parametrize(("free", "excused"), [(0, True), (3, True), (4, False), (9, False)])
def test_only_a_request_that_may_lack_blocks_is_excused(free: int, excused: bool) -> None:
    assert termination.over(beside_a_lost_read(free)) is excused


def test_a_request_that_runs_is_not_excused() -> None:
    [(engine, request)] = termination.unfinished(beside_a_lost_read(0, "running"))
    assert (engine, request.id) == ("D", "r1")


def test_without_a_lost_read_nobody_is_excused() -> None:
    state = beside_a_lost_read(0)._replace(transfers=())
    assert [request.id for _, request in termination.unfinished(state)] == ["r0", "r1"]


@pytest.mark.parametrize(("free", "excused"), [(0, True), (3, True), (4, False)])
def test_who_waits_on_p_for_blocks_that_it_keeps_for_one_excused_is_excused(
    free: int, excused: bool
) -> None:
    state = beside_a_lost_read(0)
    kept = Request("r1", SENDING, "xy", 2, 1, tables=((1,),))
    third = Request("r2", WAITING, "uv", 2, 1)
    blocks = (Block(),) * (free + 2)
    p = Engine("P", blocks, tuple(range(2, free + 2)), requests=(kept, third))
    assert termination.over(state._replace(engines=(p, *state.engines))) is excused


# What a load fills is what its transfer says


PAIR = CLUSTERS["turns-state"]
"""Blocks of full attention with 2 tokens, and states."""

COMPUTES = Compute("r1", 2, taken=((1,), (2,)))
LOADS = Admit("r3", 2, 4, taken=((3, 4), (5,)))
"""r3 hits block 1, which r1 takes and computes in the same step, and loads the rest."""

PAIRS = (((3,), (8,)), ((5,), (9,)))


def on_decode(*requests: Request) -> Engine:
    return Engine("D", (Block(),) * 12, (), requests=requests)


def state(phase: Phase, **lists: object) -> State:
    """r1 computes on D, and r3 loads."""
    r1 = Request("r1", RUNNING, "aa", 2, 2, computed=2, tables=((1,), (2,)))
    tables = ((1, 3, 4), (0, 0, 5))
    r3 = Request("r3", LOADING, "aaaaaab", 7, 2, tables=tables, hit=2, external=4)
    sent = Request("r3", SENDING, "aaaaaa", 7, 2, computed=6, tables=((6, 7, 8), (0, 0, 9)))
    there = Engine("P", (Block(),) * 12, (), requests=(sent,))
    transfer = Transfer("r3", phase, 6, **lists)  # type: ignore[arg-type]
    return State((there, on_decode(r1, r3)), (transfer,))


READS = state(Phase.READING, remote=((6, 7, 8), (9,)), local=((3, 4), (5,)), pairs=PAIRS)
REGISTERED = state(Phase.REGISTERED, remote=(), local=((3, 4), (5,)))
REFUSED = state(Phase.REFUSED, remote=((6, 7, 8), (9,)))


def found(name: str, after: State, zeroed: tuple[int, ...] = ()) -> list[int | None]:
    """The blocks of the findings of an invariant after a step of D."""
    before = State((Engine("P", (), ()), on_decode()))
    event: Event = Schedule("D", (COMPUTES, LOADS))
    step = Step(before, event, Effects(zeroed=zeroed), after)
    return [found.about.block for found in broken(PAIR, step, [INVARIANTS[name]])]


[LOAD] = READS.transfers
FEWER = READS._replace(transfers=(LOAD._replace(local=((3,), (5,))),))
"""The connector gets fewer blocks."""


@pytest.mark.parametrize(
    ("name", "after", "zeroed", "blocks"),
    [
        ("zeroed_blocks_are_new", READS, (1,), []),  # r1 computes it; the load does not fill it
        ("zeroed_blocks_are_new", REGISTERED, (1,), []),
        ("zeroed_blocks_are_new", READS, (1, 3), [3]),
        ("zeroed_blocks_are_new", REGISTERED, (1, 3), [3]),
        ("zeroed_blocks_are_new", REFUSED, (1, 3), []),  # no transfer says what it fills
        ("new_blocks_are_zeroed", REFUSED, (1,), []),
        ("new_blocks_are_zeroed", READS, (1,), []),
        ("new_blocks_are_zeroed", READS, (4,), [1]),  # it is not given to the connector either
        ("new_blocks_are_zeroed", FEWER, (1,), [4]),
    ],
)
def test_what_no_load_fills_is_erased_and_nothing_else(
    name: str, after: State, zeroed: tuple[int, ...], blocks: list[int]
) -> None:
    assert found(name, after, zeroed) == blocks


def test_blocks_that_a_transfer_does_not_pair_may_be_freed() -> None:
    """Block 4 of D and block 7 of P are in the lists before trimming, and not in the pairs."""
    [there, here] = READS.engines
    [r1, r3] = here.requests
    kept = on_decode(r1, r3._replace(tables=((1, 3), (0, 5))))
    sent = there._replace(requests=(there.requests[0]._replace(tables=((8,), (9,))),))
    assert found("nothing_reused_under_transfer", READS._replace(engines=(sent, kept))) == []
    freed = READS._replace(engines=(sent, on_decode(r1)))
    step = Step(READS, Schedule("D"), Effects(), freed)
    [wrong] = broken(PAIR, step, [INVARIANTS["nothing_reused_under_transfer"]])
    assert "a transfer still writes blocks [3, 5] of r3 on D" in wrong.sentences


JOBS = (
    Job("r0", "aaaaaaa", 1),
    Job("r1", "aaaaaaa", 3),
    Job("r2", "bbbbbbbbb", 1),
    Job("r3", "aaaaaa", 1),
)

RUN = """
Submit P r0, Submit P r1, Schedule P, Complete P, Schedule P, Complete P, Submit P r2, Submit P r3,
Submit D r0, Submit D r1, Schedule P, Complete P, Schedule D, TransferDone r0, TransferDone r1,
Schedule P, Complete P, Schedule D, Complete D, LeaseExpire r0_reverse, Submit D r2, Schedule P,
Complete P, Schedule D, Complete D, Submit D r3, Schedule D, Complete D, TransferDone r2,
Schedule D, Schedule D, Complete D, LeaseExpire r2_reverse, Schedule D
"""
"""r1 is preempted on D and starts over. In the last step it takes blocks and computes them, and r3
hits one of them and loads the tokens after it."""


@pytest.mark.live
def test_vllm_and_the_sanitizer_agree_about_a_hit_of_the_same_step() -> None:
    observed = Observed(replace(PAIR, jobs=JOBS))
    for words in map(str.split, RUN.split(",")):
        step = observed.take(EVENTS[words[0]](*(word.replace("_", " ") for word in words[1:])))
    assert isinstance(step.event, Schedule)
    last, loads = (step.event.chose or ())[-1], step.after.transfer("r3")
    assert isinstance(last, Admit)
    assert loads is not None
    assert set(last.hit[0]) & set(step.effects.zeroed or ())
    assert not blocks_filled(PAIR, loads) & set(step.effects.zeroed or ())
    checks = INVARIANTS["zeroed_blocks_are_new"], INVARIANTS["new_blocks_are_zeroed"]
    assert not list(broken(observed.machine.cluster, step, checks))
    assert not {"zeroed_blocks_are_new", "new_blocks_are_zeroed"} & set(observed.found)
    assert observed.judges["D"].times_judged["zeroed_blocks_are_new"]


# What passes for the known shrunk_hit_is_not_matched_again


GROUPS = (Group("full", 2, eagle=True), Group("window", 2, 2, eagle=True), Group("mamba", 2))
THREE_KINDS = Cluster("c", (EngineConfig("E", GROUPS, 20, drafts=1),))
PROMPT = "abcdefghi"


@pytest.mark.parametrize(
    ("ends", "known"),
    [
        ((4, 8), False),  # the longest that it has: a drafter's block was not asked for
        ((4,), False),
        ((2, 6, 8), False),  # a block of the hit itself is missing
        ((4, 6, 8), False),  # nothing is missing
        ((4, 8, 10), True),
    ],
)
def test_only_a_window_that_matched_a_longer_hit(ends: tuple[int, ...], known: bool) -> None:
    """A hit of 4 tokens; the window has the blocks that end there, and the others have all."""
    cached = {(group, PROMPT[:end]) for group in (0, 2) for end in range(2, 11, 2)}
    cached |= {(1, (PROMPT + "jk")[:end]) for end in ends}
    keys = tuple((key, (1,)) for key in sorted(cached))
    admission = Admission("E", "r0", PROMPT + "jk", "local", 4, 0, keys)
    step = Step(State((), ()), Schedule("E"), Effects(admissions=(admission,)), State((), ()))
    about = About(engine="E", request="r0", group=1)
    assert shrunk_hit_is_not_matched_again.present(THREE_KINDS, step, about) is known


# What a check of a scheduler's step excuses


ALONE = Cluster("alone", (EngineConfig("E", FULL, 8, watermark_blocks=2),), (Job("r0", "aa"),))
URGENT = Cluster(
    "urgent",
    (EngineConfig("E", FULL, 8, policy="priority"),),
    (Job("r0", "aa", 1, priority=1), Job("r1", "aa", 1, priority=0)),
)
WAITS = Request("r0", WAITING, "aa", 2, 1)


def kinds_of_excuses(
    name: str, cluster: Cluster, before: Engine, *chose: Choice, after: Engine | None = None
) -> list[list[str]]:
    """For each break in a step with these choices, the kinds of its excuses."""
    step = alone(before, Schedule("E", chose), after)
    return kinds_of(INVARIANTS[name].of_step(cluster, step))


def with_requests(*requests: Request, free: int = 7) -> Engine:
    running = tuple(each.id for each in requests if each.status == RUNNING)
    return Engine("E", (Block(),) * 8, tuple(range(free)), requests=requests, running=running)


def test_who_waits_keeps_blocks_only_for_what_it_has_loaded() -> None:
    keeps = WAITS._replace(tables=((1,),))
    assert kinds_of_excuses("every_request_in_one_queue", ALONE, with_requests(keeps)) == [[]]
    loaded = with_requests(keeps._replace(external=2))
    assert kinds_of_excuses("every_request_in_one_queue", ALONE, loaded) == [["choice"]]


def test_who_holds_blocks_may_be_admitted_before_who_is_more_urgent() -> None:
    admitted = Admit("r0", 0, 0)
    both = with_requests(WAITS, WAITS._replace(id="r1"))
    assert kinds_of_excuses("priority_is_kept", URGENT, both, admitted) == [[]]
    holds = with_requests(WAITS._replace(tables=((1,),)), WAITS._replace(id="r1"))
    assert kinds_of_excuses("priority_is_kept", URGENT, holds, admitted) == [["choice"]]


def test_only_the_first_request_of_an_idle_engine_takes_the_blocks_of_the_watermark() -> None:
    chose = Admit("r0", 0, 0), Compute("r0", 2)
    alone, full = with_requests(WAITS), with_requests(WAITS, free=1)
    assert kinds_of_excuses("watermark_is_kept", ALONE, alone, *chose, after=full) == [["choice"]]
    beside = with_requests(WAITS, WAITS._replace(id="r1", status=RUNNING))
    assert kinds_of_excuses("watermark_is_kept", ALONE, beside, *chose, after=full) == [[]]


def test_a_preemption_is_needed_only_if_its_blocks_are_taken() -> None:
    name, needy = "preempted_blocks_are_needed", WAITS._replace(status=RUNNING, tables=((2,),))
    victim = WAITS._replace(id="r1", status=RUNNING, tables=((1,),))
    before = with_requests(needy, victim, free=0)._replace(blocks=(Block(1),) * 8)
    full, free = with_requests(needy, free=0), with_requests(needy, free=1)
    preempts = Preempt("r1", "r0"), Compute("r0", 1)
    assert kinds_of_excuses(name, ALONE, before, *preempts, after=full) == []
    assert kinds_of_excuses(name, ALONE, before, *preempts, after=free) == [["release"]]
    itself = Preempt("r1", "r1")
    assert kinds_of_excuses(name, ALONE, before, itself, after=free) == [["choice"]]


@pytest.mark.parametrize(
    ("hit", "cached", "kinds"), [(2, "aa", []), (0, "aa", [["release"]]), (0, "", [["choice"]])]
)
def test_a_preempted_request_finds_what_it_had_computed(
    hit: int, cached: str, kinds: list[list[str]]
) -> None:
    again = WAITS._replace(status=PREEMPTED, output="..")
    entries = (((0, cached), (1,)),) if cached else ()
    admission = Admission("E", "r0", again.tokens, "local", hit, 0, entries)
    step = alone(with_requests(again), Schedule("E", ()), admissions=(admission,))
    assert kinds_of(INVARIANTS["preempted_tokens_are_kept"].of_step(ALONE, step)) == kinds


def test_a_refused_reset_names_what_is_in_use() -> None:
    def refused(*requests: Request) -> list[list[str]]:
        step = alone(with_requests(*requests, free=1), ResetPrefixCache("E"))
        return kinds_of(INVARIANTS["reset_is_answered"].of_step(ALONE, step))

    assert refused() == [["release"]]
    assert refused(WAITS._replace(status=SENDING, tables=((1,),))) == [["choice"]]


def test_entries_that_stay_for_the_first_time_are_excused_and_those_that_grow_are_not() -> None:
    check = INVARIANTS["idle_engine_keeps_nothing"]
    for kept, kinds in (
        (Kept("E", "notes", 2), [["choice"]]),
        (Kept("E", "notes", 2, before=2, same=2), []),
        (Kept("E", "notes", 3, before=2, same=2), [[]]),
    ):
        step = alone(with_requests(WAITS), Schedule("E"), kept=(kept,))
        assert kinds_of(check.of_step(ALONE, step)) == kinds


@pytest.mark.parametrize(
    ("fact", "kinds"),
    [
        (CacheStatistics("engine's", 2, 2), []),
        (CacheStatistics("engine's", 1, 2), [["choice"]]),
        (CacheStatistics("engine's", 3, 2, failed=1), [["choice"]]),
        (CacheStatistics("engine's", 3, 2), [[]]),
    ],
)
def test_a_request_is_looked_up_once_or_there_is_a_reason(
    fact: CacheStatistics, kinds: list[list[str]]
) -> None:
    assert kinds_of(statistics_count_once.function(fact)) == kinds


def test_the_last_token_of_a_prompt_that_is_cached_whole_is_computed_again() -> None:
    def kinds(admitted: tuple[int, int]) -> list[list[str]]:
        fact = PromptReported("r0", 9, 4, 4, 1, admitted=(admitted,))
        return kinds_of(prompt_statistics_add_up.function(fact))

    assert kinds((4, 4)) == []
    assert kinds((4, 5)) == [["choice"]]
    assert kinds((4, 0)) == [[]]


def test_a_request_alone_may_get_more_tokens_than_one_beside_others() -> None:
    cluster = Cluster("c", (EngineConfig("E", FULL, 8, long_prefill_tokens=2),))
    step = GUARDS["step_keeps_its_limits"]
    for others, kinds in ((), ["choice"]), ((WAITS._replace(id="r1"),), []):
        before = with_requests(WAITS._replace(prompt="aaaa"), *others)
        after = with_requests(WAITS._replace(prompt="aaaa", computed=4, status=RUNNING), *others)
        found = step.of_step(cluster, alone(before, Schedule("E", (Compute("r0", 4),)), after))
        assert kinds_of(found) == [kinds]


@pytest.mark.parametrize(("prompt", "kinds"), [("aa", []), ("a", [["choice"]]), ("ab", [[]])])
def test_the_prompt_of_a_request_may_only_lose_its_last_tokens(
    prompt: str, kinds: list[list[str]]
) -> None:
    before, after = with_requests(WAITS), with_requests(WAITS._replace(prompt=prompt))
    step = alone(before, Schedule("E", ()), after)
    assert kinds_of(GUARDS["output_is_what_was_sampled"].of_step(ALONE, step)) == kinds


@pytest.mark.parametrize(("paused", "kinds"), [(True, ["choice"]), (False, [])])
def test_a_request_waits_in_an_idle_loop_only_while_a_client_pauses_it(
    paused: bool, kinds: list[str]
) -> None:
    played = Played(given(), waits=(LoopWait(1, paused, waiting=("r0",)),))
    assert kinds_of(idle_engine_has_no_waiting_request.function(played)) == [kinds]


@pytest.mark.parametrize(
    ("played", "judged"),
    [
        (Played(given(), computed=(0, 0)), [False, False]),
        (Played(given(), computed=(0, 3)), [False, True]),
        (Played(given(), asleep=(0, 3)), [False, True]),
        (Played(given(), settled=(0, 1)), [False, True]),
    ],
)
def test_each_step_and_end_of_steps_of_a_paused_loop_is_judged(
    played: Played, judged: list[bool]
) -> None:
    _waits, *found = pause_computes_nothing.function(played)
    assert [each.breaks for each in found] == judged


@pytest.mark.parametrize(
    ("refused", "length", "blocks", "kinds"),
    [
        ("", 12, 0, []),
        ("no room", 0, 0, [["choice"]]),
        ("", 8, 0, [["choice"]]),
        ("no room", 0, -1, []),
    ],
)
def test_an_engine_that_has_the_blocks_of_a_request_starts(
    refused: str, length: int, blocks: int, kinds: list[list[str]]
) -> None:
    plan = EnginePlan((), 12, 8, blocks=blocks)
    start = Startup(plan, 5 + blocks, refused=refused, max_model_len=length)
    assert kinds_of(needed_blocks_are_enough.function(start)) == kinds


def test_each_block_that_a_first_request_takes_is_judged() -> None:
    layers = {"a": Layer("full", 4), "m": Layer("mamba", 4)}
    groups = (StartedGroup("full", 4, 0, ("a",)), StartedGroup("mamba", 4, 0, ("m",)))
    pages = tuple(Pages(name, 0, 0, 64, 64) for name in layers)
    worker = StartedWorker(layers, 640, 10, groups, (640,), pages)
    blocks = TakenBlock(0, 3, erased=True), TakenBlock(0, 4, erased=True)
    for last, breaks in (True, 0), (False, 1):
        taken = (*blocks, TakenBlock(0, 5, erased=last))
        run = LoneRequest(12, ended=True, held_max=3, computed=12, taken=taken)
        start = Startup(EnginePlan((), 12, 8), 10, workers=(worker,), run=run)
        found = [*new_blocks_have_no_old_values.function(start)]
        assert sum(each.breaks for each in found) == breaks
        assert sum(each.times for each in found) == 3


def test_a_call_may_have_no_answer_if_the_engine_was_told_to_end() -> None:
    for stopped, kinds in (True, ["choice"]), (False, []):
        played = Played(given(), calls=(Call("reset_prefix_cache"),), stopped=stopped)
        (found,) = call_is_answered_once.function(played)
        assert [excuse.kind for excuse in found.excuses] == kinds


@pytest.mark.parametrize(
    ("fact", "kind"),
    [
        (ResetAnswered(False, False, False, 1, 3), "choice"),
        (ResetAnswered(False, False, False, 0, 3), "choice"),
        (ResetAnswered(False, False, True, 0, 3), "release"),
        (ResetAnswered(False, True, True, 0, 0), "release"),
    ],
)
def test_an_idle_engine_refuses_a_reset_for_no_good_reason(fact: ResetAnswered, kind: str) -> None:
    (found,) = INVARIANTS["reset_is_answered"].function(fact)
    assert [excuse.kind for excuse in found.excuses] == [kind]
    (answered,) = INVARIANTS["reset_is_answered"].function(fact._replace(done=True))
    assert not answered.reasons


def test_a_chunk_is_as_long_as_its_step_has_room_for() -> None:
    waits = WAITS._replace(prompt="aaaa")
    runs = waits._replace(status=RUNNING, computed=2, tables=((1,),))
    chunk, name = Compute("r0", 2), "budget_is_used"
    for free, says in (3, "shorter than"), (0, "not enough"):
        before, after = with_requests(waits, free=free), with_requests(runs, free=free)
        (found,) = INVARIANTS[name].of_step(ALONE, alone(before, Schedule("E", (chunk,)), after))
        assert [says in excuse.says for excuse in found.excuses] == [True]
    whole = with_requests(runs._replace(computed=4))
    assert kinds_of_excuses(name, ALONE, with_requests(waits), chunk, after=whole) == []


@pytest.mark.parametrize(
    ("max_tokens", "pending", "kinds"), [(1, 1, [["release"]]), (2, 2, [["choice"]]), (3, 2, [])]
)
def test_no_step_comes_after_the_last_token_of_a_request(
    max_tokens: int, pending: int, kinds: list[list[str]]
) -> None:
    runs = WAITS._replace(status=RUNNING, max_tokens=max_tokens, computed=2)
    before = with_requests(runs)._replace(
        steps=((Flight("r0", 2, True, ahead=pending - 1),),), pending=(("r0", pending),)
    )
    name = "no_step_comes_after_the_last_token"
    assert kinds_of_excuses(name, ALONE, before, Compute("r0", 1)) == kinds


@pytest.mark.parametrize(
    ("prompt", "admitted", "kinds"),
    [
        ("aaab", False, [["choice"]]),
        ("aaab", True, [["release"]]),
        ("aa", True, [["choice"]]),
        ("abab", False, []),
    ],
)
def test_what_the_cache_has_is_not_computed_again(
    prompt: str, admitted: bool, kinds: list[list[str]]
) -> None:
    waits, cached = WAITS._replace(prompt=prompt), (((0, "aa"), (1,)),)
    before = with_requests(waits)._replace(cached=cached)
    after = with_requests(waits._replace(status=RUNNING, computed=2))
    looked_up = (Admission("E", "r0", prompt, "local", 0, 0, cached),) if admitted else ()
    step = alone(before, Schedule("E", (Compute("r0", 2),)), after, admissions=looked_up)
    assert kinds_of(INVARIANTS["cached_tokens_are_not_computed"].of_step(ALONE, step)) == kinds


@pytest.mark.parametrize(("preempted", "kinds"), [(0, [[]]), (1, [["choice"]])])
def test_a_preempted_prompt_may_be_found_in_a_cache_after_its_tokens_were_counted(
    preempted: int, kinds: list[list[str]]
) -> None:
    """Another request computed the same tokens meanwhile, as with small chunks."""
    played = Played(given(), did=Did(15, 57, 9, preempted), exported=Exported(15, 68, ()))
    assert kinds_of(metrics_add_up.function(played)) == kinds
