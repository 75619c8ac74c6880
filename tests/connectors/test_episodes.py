"""Right episodes of connectors that vLLM ships: each breaks no check, and has so much to judge."""

import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from kvproof.live import adapt
from kvproof.live.connectors.drawn import BUFFERED, HIDDEN, NARROWER, SPREAD
from kvproof.live.connectors.episode import play
from kvproof.live.connectors.shipped import SHIPPED, UNLIKE
from kvproof.model.config import Group
from kvproof.model.config.engine import Policy
from kvproof.model.plans.connector import (
    PREFILLED,
    ROUTES,
    SOURCE,
    STORE_ANSWERS,
    AbortRequest,
    Another,
    ConnectorPlan,
    Copies,
    Drain,
    Fail,
    Forget,
    PauseEngine,
    ResetCache,
    Restart,
    ResumeEngine,
    Rows,
    RunSteps,
    Stand,
    SubmitRequest,
    TransferParams,
    bare,
)
from tests.connectors.played import (
    AGAIN,
    BESIDE_WINDOW,
    EARLY,
    FULL,
    LATE,
    NIXL,
    PROMPTS,
    PROMPTS_WITH_STATES,
    between_ranks,
    engine_of,
    mended,
    played,
    rules,
    saving_states,
    turns,
)

SOME = range(1, sys.maxsize)
PROMISED = {"promised tokens": SOME}

COUNTED_TWICE = {"mooncake": {"statistics_count_once"}}
"""Mooncake's P counts each attempt to find a request."""

STATES = Group("full", 4), Group("mamba", 4)
TWICE = (*PROMPTS, Drain(), ResetCache(), *PROMPTS)
SLOTS = 2 * 2 * (14 + 10)
"""The slots of both prompts in two layers, twice."""


class Episode(NamedTuple):
    """An episode of a connector. `judged` has the number of things of each kind, `breaks` the
    checks that vLLM as released breaks in it, `mended` the findings with whose diffs it is
    played."""

    connector: str
    actions: tuple[Any, ...]
    plan: dict[str, Any]
    judged: dict[str, int | range]
    breaks: set[str]
    mended: tuple[str, ...]


def of(
    connector: str,
    *actions: Any,
    judged: dict[str, Any] = PROMISED,
    breaks: str = "",
    mended: tuple[str, ...] = (),
    **plan: Any,
) -> Episode:
    """An episode in which tokens are loaded, if it is not said otherwise."""
    return Episode(connector, actions, plan, judged, {*breaks.split()}, mended)


Episodes = Iterator[Episode]
Topic = Callable[[], Episodes]

TOPICS: list[Topic] = []
"""What the episodes are about: each function is a sentence that is true of its own."""


def topic(episodes: Topic) -> Topic:
    """Play these episodes."""
    TOPICS.append(episodes)
    return episodes


# A connector that is alone loads what it stored.

NOT_WHOLE = {"decode-bench", "hidden-states", "images", "images-stored", "images-encoded"}
"""Some load what is wrong on purpose, the others store nothing."""

STORES_LESS = {"lmcache", "multi-lmcache-offloading"}
"""It stores too little of a prompt whose beginning the engine has (`reports/connectors.md`)."""

ONE_GROUP = {*STORES_LESS, "lmcache-wide", "example", "multi-example-offloading"}
"""They support one cache group."""

SMALL = {"offloading-small"}
"""What two prompts have in two cache groups is more than they can store."""

FULL_ON_RANKS = {"simple-cpu", "simple-cpu-lazy"}
"""Their room is for all ranks, and what a prompt has on four of them is more."""

FAMILIES = SubmitRequest(0, 14), SubmitRequest(1, 14), Drain()
STORED = (*FAMILIES, ResetCache(), *FAMILIES)


@topic
def each_loads_what_it_stored() -> Episodes:
    for name in sorted(SHIPPED.keys() - NOT_WHOLE):
        subject = SHIPPED[name].subject
        less = "stored_prefix_is_offered" if name in STORES_LESS else ""
        several = () if name in ONE_GROUP | SMALL else (BESIDE_WINDOW, STATES)
        for groups in (each for each in (FULL, *several) if subject.takes(each, False)):
            for late in (False, True):
                engine, copies = engine_of(groups), Copies(late, 1)
                yield of(name, *STORED, engine=engine, copies=copies, breaks=less)


@topic
def each_rank_loads_its_part() -> Episodes:
    for name, shipped in SHIPPED.items():
        for layers in SPREAD if shipped.subject.ranks else ():
            judged = {} if layers.tensor and name in FULL_ON_RANKS else PROMISED
            ranks = {"ranks": layers.ranks, "tensor": layers.tensor}
            engine = engine_of(layers.engine.groups)
            yield of(name, *STORED, engine=engine, judged=judged, **ranks)


@topic
def options_change_nothing() -> Episodes:
    again = (SubmitRequest(0, 14, 4), Drain(), ResetCache(), SubmitRequest(0, 14, 4))
    for name, each in SHIPPED.items():
        for options in each.subject.options:
            yield of(name, *again, *again, engine=engine_of(num_blocks=64), options=options)


STORES = ("offloading", "simple-cpu", "mooncake-store")
ONE_KERNEL, *SEVERAL = (
    bare(Group("full", 4), *beside, kernel_blocks=2)
    for beside in ((), (Group("window", 4, window=8),), (Group("mamba", 4),))
)
"""Kernels have blocks of their own, some to an attention block of the engine: connectors get views
in these (`--block-size` above what the attention backend takes)."""


@topic
def layers_may_be_of_any_form() -> Episodes:
    for name in (*STORES, *NIXL):
        for groups in (FULL, BESIDE_WINDOW):
            for form in ({"latent": True}, {"uneven": True}, {"uneven": True, "latent": True}):
                yield of(name, *AGAIN, engine=engine_of(groups, 64), **form)
    for ranks in SHIPPED["nixl-pull"].subject.unequal:  # each of them has the one head of a layer
        latent = {"engine": engine_of(num_blocks=64), "latent": True, **between_ranks(*ranks)}
        yield of("nixl-pull", *AGAIN, **latent)
    for name in (*STORES, "nixl-pull"):
        for first in (False, True):
            yield in_kernel_blocks(name, ONE_KERNEL, first_runner=first)
    for name in ("offloading", "nixl-push"):
        for several in SEVERAL:
            yield in_kernel_blocks(name, several)


def in_kernel_blocks(name: str, layers: ConnectorPlan, **more: Any) -> Episode:
    """Prompts that are loaded in the blocks of a kernel."""
    engine = engine_of(layers.engine.groups, 48)
    return of(name, *TWICE, engine=engine, kernel_blocks=layers.kernel_blocks, **more)


@topic
def the_first_runner_calls_it() -> Episodes:
    for name in ("example", *STORES, *NIXL):
        for drafts in (0, 2):
            engine = engine_of(num_blocks=64, drafts=drafts)
            yield of(name, *AGAIN, engine=engine, first_runner=True)


@topic
def a_store_may_need_a_prefix_cache() -> Episodes:
    """vLLM's connector for CPU memory says in the log that it is off without one."""
    uncached = engine_of(num_blocks=64, prefix_caching=False)
    yield of("simple-cpu-roomy", *AGAIN, engine=uncached, judged={"promised tokens": 0})


@topic
def an_engine_runs_to_idle_under_a_pause() -> Episodes:
    """What comes under it waits for its end, and is no hang."""
    for name in (*STORES, *NIXL, "mooncake"):
        for new in (False, True):
            waits = PauseEngine(new), SubmitRequest(1, 14, 2), Drain(), ResumeEngine(), Drain()
            first = SubmitRequest(0, 14, 6), RunSteps(2)
            yield of(name, *first, *waits, ResetCache(), *AGAIN, engine=engine_of(num_blocks=64))


@topic
def the_computed_tokens_of_an_answer_are_loaded() -> Episodes:
    """The last token of an answer is not computed."""
    answers, saves = ((option,) for option in STORE_ANSWERS)
    stores = ("offloading-roomy", answers), ("mooncake-store", saves), ("simple-cpu-roomy", ())
    for name, options in stores:
        for answered, blocks in (2, 3), (3, 4), (6, 4), (7, 5):
            judged = {"promised tokens": 2 * 4 * blocks, "prompts that came again": 1}
            yield of(name, *turns(answered), options=options, judged=judged)


@topic
def a_request_may_load_again_in_one_action() -> Episodes:
    """r4 loads, loses its blocks to r3, and loads again, all within the last action."""
    engine = engine_of((Group("full", 8),), 7, steps_in_flight=2)
    first, second, loses = SubmitRequest(0, 24, 6), SubmitRequest(1, 24, 6), (Drain(), ResetCache())
    actions = first, *loses, first, second, *loses, second, first
    late = Copies(late=True, steps=1)
    judged = {"loads": 5}
    yield of("simple-cpu-roomy", *actions, engine=engine, copies=late, ranks=2, judged=judged)


@topic
def a_hit_ends_where_the_blocks_of_each_group_do() -> Episodes:
    """The drafter takes a narrow block from the hit: what is left of a wide one is no hit."""
    narrow = Group("window", 2, window=4, eagle=True)
    groups = Group("full", 8), Group("window", 8, window=8), narrow
    prompt = SubmitRequest(0, 17, 1)
    for name in ("offloading-roomy", "simple-cpu-roomy"):
        came = {"prompts that came again": SOME}
        engine = engine_of(groups, 40, drafts=2)
        yield of(name, prompt, Drain(), prompt, engine=engine, judged=came)


@topic
def hidden_states_are_those_of_the_prompt() -> Episodes:
    saved = {"saved hidden states": 14 + 9 + 16}
    for layers in HIDDEN:
        for late in (False, True):
            plan = saving_states(layers, late)
            yield of("hidden-states", *PROMPTS_WITH_STATES, judged=saved, **plan)


def with_rows(rows: Rows | None, family: int = 0) -> tuple[Any, ...]:
    """A request with embeddings."""
    return SubmitRequest(family, 14, 2, rows=rows), Drain()


@topic
def equal_embeddings_are_offered_and_others_are_not() -> Episodes:
    used = with_rows(Rows(0, 8))
    others = with_rows(None), with_rows(Rows(4, 4)), with_rows(Rows(0, 8), family=3)
    names = "offloading-roomy", "mooncake-store", "nixl-pull"
    for name in names if adapt.mixes_embeddings() else ():
        yield of(name, *used, ResetCache(), *used)
        for other in others:
            yield of(name, *used, *other, judged={})


# P and D.


@topic
def d_gets_what_p_computed_and_p_gives_its_blocks_back() -> Episodes:
    whole = {"loads": 4, "kept requests": 4, "promised tokens": SLOTS}
    for name in (*NIXL, "mooncake"):
        for copies in (EARLY, LATE):
            yield of(name, *TWICE, copies=copies, judged=whole)
        for ranks in SHIPPED[name].subject.unequal:
            judged = {"promised tokens": SLOTS * ranks[1]}
            yield of(name, *TWICE, judged=judged, **between_ranks(*ranks))


GROUPS = STATES, STATES[::-1], (*STATES, STATES[1])


@topic
def d_gets_the_state_and_computes_the_last_token() -> Episodes:
    loads = {"loads": 4, **PROMISED}
    for name in NIXL:
        for groups in GROUPS:
            yield of(name, *TWICE, engine=engine_of(groups, 48), judged=loads)
        for ranks in SHIPPED[name].subject.unequal:
            for latent in (False, True):  # each rank has that, and of a state a part (vllm#49297)
                plan: dict[str, Any] = {"engine": engine_of(STATES, 48), "latent": latent}
                yield of(name, *TWICE, judged=loads, **plan, **between_ranks(*ranks))


@topic
def a_client_may_go_away_in_each_phase() -> Episodes:
    for steps in range(1, 8):
        both = RunSteps(steps), AbortRequest(0), RunSteps(1), AbortRequest(1)
        yield of("nixl-pull", *PROMPTS, *both, copies=LATE, judged={})
        for which in range(4):
            for copies in (EARLY, LATE):
                goes = RunSteps(steps), AbortRequest(which)
                yield of("mooncake", *PROMPTS, *goes, copies=copies, judged={})


@topic
def a_write_that_fails_ends_a_load_and_no_more() -> Episodes:
    fails = Fail(times=1, raises=False), RunSteps(9)
    yield of("mooncake", *PROMPTS, *fails, *PROMPTS, judged={"failures": 1})


@topic
def a_request_that_was_loaded_fails_with_its_batch() -> Episodes:
    """In 0.32.0, mended in 0.33.0. P answers for one request of a batch, and is gone before the
    other one is ready. When D has waited long enough, the worker reports both."""
    lost = SubmitRequest(1, 9, 1), AbortRequest(0), Drain()
    whole = SubmitRequest(1, 7, 1, computes_all=True)
    batch = SubmitRequest(0, 6, 1), whole, AbortRequest(1), Drain()
    dies = "reports_are_of_known_transfers failed_blocks_are_of_loads engine_survives"
    for copies in (EARLY, LATE):
        actions = (*batch, Restart(), *lost, *lost, *lost)
        yield of("mooncake", *actions, copies=copies, breaks=dies, judged={})


@topic
def places_for_drafts_that_nobody_has_made_are_rejected() -> Episodes:
    """The last token of a prompt is computed beside places for drafts (vllm#45237), on P too."""
    prompts = SubmitRequest(0, 24, 4), RunSteps(3), SubmitRequest(0, 21, 4)
    plan = {"engine": engine_of(BESIDE_WINDOW, 64, drafts=2), "copies": LATE, "accepted": 2}
    yield of("nixl-pull", *prompts, judged={"loads": 2}, **plan)


@topic
def no_load_from_an_engine_that_does_not_fit_succeeds() -> Episodes:
    """Each request is answered all the same."""
    engine, none = engine_of(num_blocks=64), {"failures": SOME, "promised tokens": 0}
    for name in NIXL:
        for unlike in UNLIKE:
            prompt = SubmitRequest(0, 14, 2)
            yield of(name, prompt, engine=engine, unlike=unlike, judged=none)
    replaced = (*(SubmitRequest(0, tokens, 2) for tokens in (4, 14, 9)), Restart())
    restarts = {"engines that were started again": 1}
    yield of("nixl-pull", *replaced, engine=engine, unlike="model", judged=restarts)


LONGER = (
    *(SubmitRequest(0, 22, 2), Drain(), ResetCache()),
    *(SubmitRequest(0, 24, 2), Drain(), SubmitRequest(0, 16, 2)),
)
STAGED = "rest_of_block_is_not_staged", "staging_overwrites_other_groups"


def with_layers(layers: ConnectorPlan, chunk_tokens: int) -> dict[str, Any]:
    """The plan of an engine with these layers, without its actions."""
    plan = msgspec.structs.asdict(layers)
    del plan["actions"]
    engine = msgspec.structs.replace(layers.engine, num_blocks=48, chunk_tokens=chunk_tokens)
    return plan | {"engine": engine}


@topic
def host_buffers_hold_whole_prompts_once_they_are_mended() -> Episodes:
    """NIXL cannot read the memory of such a device."""
    for name in NIXL:
        for layers in BUFFERED:
            yield of(name, *LONGER, mended=STAGED, **with_layers(layers, 5))


@topic
def blocks_of_p_or_d_may_be_half_as_wide() -> Episodes:
    for layers in NARROWER:
        plan = with_layers(layers, 64)
        if "window" not in layers.traits:
            yield of("nixl-pull", *LONGER, **plan)
        if layers is NARROWER[0]:  # half of D's last block of this hit is behind the prompt
            hit = SubmitRequest(0, 9, 2), Drain(), SubmitRequest(0, 18, 2)
            yield of("nixl-pull", *hit, mended=("padding_is_paired_with_tokens",), **plan)


@topic
def d_loads_from_p_and_stores_take_what_was_computed() -> Episodes:
    judged = {"kept requests": range(4, sys.maxsize), "values that a store was sent": SOME}
    for unlike in ("", "stores"):
        yield of("multi-nixl-store", *TWICE, copies=LATE, unlike=unlike, judged=judged)
    slow = (*PROMPTS, Stand("second", 12), Drain(), ResetCache(), *PROMPTS)
    tight = engine_of(num_blocks=9)
    yield of("multi-nixl-store", *slow, engine=tight, copies=LATE, judged={})


# A peer is asked for a prompt.


def asking(family: int, route: TransferParams) -> SubmitRequest:
    """A request that the second engine is to get from the first one."""
    return SubmitRequest(family, 14, 2, asks=route)


@topic
def an_engine_gets_the_prompt_from_the_other() -> Episodes:
    for route in sorted(set(ROUTES)):
        for late in (False, True):
            prompts = SubmitRequest(0, 14, 2), Drain(), asking(0, route), Drain()
            judged = {"loads": 1, "promised tokens": 2 * 12}
            yield of("offloading-peers", *prompts, copies=Copies(late, 2), judged=judged)


@topic
def a_network_that_fails_costs_a_computation() -> Episodes:
    route = ((PREFILLED, 0),)
    first, second = (asking(0, route), RunSteps(2)), (asking(1, route), Drain())
    yield of("offloading-peers", *first, *second, copies=LATE, judged={"loads": 2})
    for fails in (Fail(times=2), Forget()):
        lost = {"loads": range(2)}
        yield of("offloading-peers", *first, fails, *second, copies=LATE, judged=lost)


# What stands for a while, its sockets open.

FOR_LONG = 100
"""More steps than any engine waits for an answer."""


def asked(before: int, steps: int = FOR_LONG, route: TransferParams = ((SOURCE, 0),)) -> Any:
    """The second engine asks the first one, which stands after so many steps."""
    ran = [RunSteps(before)] * bool(before)
    stands = Stand("first", steps), Drain()
    return SubmitRequest(0, 14, 2), Drain(), asking(0, route), *ran, *stands


@topic
def a_request_ends_although_its_peer_stands() -> Episodes:
    """But for a look-up that begins and is not answered (`look_up_has_no_deadline`)."""
    known = (asked(1, 5), asked(2, 5), asked(3, 5), asked(0), asked(2), asked(3))
    prefilled = (asked(before, route=((PREFILLED, 1),)) for before in range(1, 4))
    for actions in (*known, *prefilled):
        yield of("offloading-peers", *actions, copies=LATE, judged={})


@topic
def messages_wait_for_an_engine_that_stands() -> Episodes:
    loads = {"loads": range(4, sys.maxsize)}
    for name in (*NIXL, "mooncake"):
        for who in ("first", "second"):
            stands = RunSteps(2), Stand(who, 12), PROMPTS[0], RunSteps(3), AbortRequest(1)
            after = Drain(), ResetCache(), *PROMPTS
            yield of(name, *PROMPTS, *stands, *after, copies=LATE, judged=loads)
    for steps in (20, 40, 49):  # P keeps its blocks until D, which has given up, has told it
        stands = SubmitRequest(0, 7, 2), RunSteps(), Stand("first", steps), Drain()
        yield of("mooncake", *stands, copies=LATE, judged={})


@topic
def a_look_up_is_answered_when_the_threads_of_the_store_go_on() -> Episodes:
    actions = Stand("store", FOR_LONG), SubmitRequest(0, 4), Drain()
    yield of("offloading-files", *actions, judged={})


@topic
def what_a_slow_store_has_not_stored_yet_is_not_offered() -> Episodes:
    """It is loaded when the store has gone on."""
    prompt, *_ = AGAIN
    slow = prompt, RunSteps(), Stand("store", 30), RunSteps(3), ResetCache(), prompt, Drain()
    for name in ("mooncake-store", "lmcache", "offloading-kept"):
        yield of(name, *slow, ResetCache(), prompt, Drain(), copies=Copies(), judged={"loads": 2})


# Engines that are started again, replicas, and a server that forgets.

PROMPT = SubmitRequest(0, 14)
ROOM = engine_of(num_blocks=32)


def restarted(*another: Another) -> tuple[Any, ...]:
    """A prompt, and the same one each time that the engine was started again."""
    return PROMPT, *(part for each in another for part in (Restart(each), PROMPT))


@topic
def one_that_is_started_again_is_another_engine() -> Episodes:
    one, restarts = SubmitRequest(1, 14, 3), "engines that were started again"
    turns = (Restart(), one, Drain(), ResetCache(), *PROMPTS, Restart(), *PROMPTS)
    for name in NIXL:
        for late in (True, False):
            judged = {restarts: 2, "loads": 7}
            yield of(name, *PROMPTS, *turns, copies=Copies(late, 2), judged=judged)
    for before in ((), (SubmitRequest(1, 9),)):
        yield of("mooncake", *PROMPTS, *before, Restart(), *PROMPTS, judged={restarts: 1})
    route = ((SOURCE, 0),)
    first = SubmitRequest(0, 14, 2), Drain(), asking(0, route), Drain()
    again = Restart(), asking(0, route), RunSteps(), asking(1, route), Drain()
    yield of("offloading-peers", *first, *again, *again, copies=LATE, judged={restarts: 2})


@topic
def one_that_is_gone_is_forgotten() -> Episodes:
    """P is started again, which may take longer than a connector needs to know it."""
    gone = (Restart(), SubmitRequest(1, 14, 3), Drain())
    for length in (1, 2, 3):
        judged = {"engines that are gone": 1}
        yield of("nixl-pull", *PROMPTS, *gone[:length], copies=LATE, judged=judged)


@topic
def what_was_stored_is_loaded_by_the_next_engine_of_its_kind() -> Episodes:
    once = {"loads": 1, "engines that were started again": 1}
    for name in ("offloading-files", "offloading-objects", "mooncake-store"):
        yield of(name, *restarted(""), engine=ROOM, judged=once)
    others: tuple[Another, ...] = ("model", "dtype")
    for other in others:
        yield of("offloading-files", *restarted(other), engine=ROOM, judged={"loads": 0})
        back = restarted(other, other)
        yield of("offloading-files", *back, engine=ROOM, judged={"loads": 1})


FOUR = tuple(SubmitRequest(family, 14) for family in range(4))
REPLICATED = (*FOUR, Drain(), ResetCache(), *FOUR)


@topic
def replicas_have_a_memory_each() -> Episodes:
    for name in ("offloading", "offloading-files", "simple-cpu", "mooncake-store"):
        loads = {"loads": range(4, sys.maxsize)}
        yield of(name, *REPLICATED, engine=ROOM, replicas=True, judged=loads)
    yield of("mooncake-store", PROMPT, engine=ROOM, stops=True, judged={})


@topic
def a_server_that_forgets_or_fails_gives_no_wrong_token() -> Episodes:
    prompt, engine = SubmitRequest(0, 17), engine_of(num_blocks=20, chunk_tokens=5)
    first, again = (prompt, Drain(), ResetCache()), (prompt, Drain())
    for name in ("lmcache", "lmcache-wide"):
        for copies in (EARLY, Copies(late=True, steps=1)):
            yield of(name, *first, *again, engine=engine, copies=copies)
        for lost in (Forget(), Fail(times=2, raises=True)):
            yield of(name, *first, lost, *again, engine=engine, judged={})


EPISODES = [
    pytest.param(each, id=f"{about.__name__} {each.connector}")
    for about in TOPICS
    for each in about()
]


@pytest.mark.parametrize("each", EPISODES)
def test_an_episode_breaks_what_is_known_and_no_more(each: Episode) -> None:
    with mended(each.mended):
        result = played(each.connector, *each.actions, **each.plan)
    assert rules(result) - COUNTED_TWICE.get(each.connector, set()) == each.breaks
    for what, number in each.judged.items():
        numbers = number if isinstance(number, range) else (number,)
        assert result.judged[what] in numbers, what


def test_these_connectors_and_no_others_support_one_group() -> None:
    alone = {name for name, each in SHIPPED.items() if not each.subject.supports_groups}
    assert alone == ONE_GROUP


@pytest.mark.parametrize(("policy", "first"), [("fcfs", "r0"), ("priority", "r1")])
def test_an_urgent_request_goes_before_a_patient_one(policy: Policy, first: str) -> None:
    begun: list[str] = []

    def note(played: Any, _moment: Any) -> bool:
        requests = played.engines[0].scheduler.requests.items()
        begun.extend(name for name, each in requests if each.num_computed_tokens)
        return True

    engine = engine_of(chunk_tokens=5, policy=policy)
    actions = SubmitRequest(0, 14, priority=1), SubmitRequest(1, 14, priority=0), RunSteps()
    play(SHIPPED["offloading"].subject, ConnectorPlan(engine, actions), note)
    assert begun[0] == first


@pytest.mark.parametrize(
    ("noted", "breaks"),
    [
        (str, set()),
        (lambda name: deque([(name, 1)], maxlen=9), set()),
        (lambda name: deque([(name, 1)]), {"gone_requests_are_forgotten"}),
        (lambda name: [name], {"gone_requests_are_forgotten"}),
    ],
    ids=["one", "the last ones", "all with a number", "all"],
)
def test_a_connector_may_have_the_name_of_one_request(
    noted: Callable[[str], Any], breaks: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has that of the first one, or keeps as many as there are."""
    from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler as Side

    right = Side.get_num_new_matched_tokens

    def asked(self: Any, request: Any, computed: int) -> Any:
        self.noted = vars(self).get("noted") or noted(request.request_id)
        return right(self, request, computed)

    monkeypatch.setattr(Side, "get_num_new_matched_tokens", asked)
    assert rules(played("simple-cpu", *PROMPTS, Drain(), *PROMPTS)) == breaks
