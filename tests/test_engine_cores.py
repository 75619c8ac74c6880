"""A real engine core on drawn plans, its start-up and its loop, and what the checks say of it."""

import importlib
import json
import queue
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from itertools import count, islice
from pathlib import Path
from threading import Event, Lock
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import LOOP, Engine, Engines, Workload
from kvproof.gate.search import workloads
from kvproof.gate.search.trial import AT_ONCE
from kvproof.gate.side import around_scheduler
from kvproof.gate.side import plans as side_plans
from kvproof.gate.side.around_scheduler import broken
from kvproof.invariants.check import Tally
from kvproof.invariants.registry import checks_of
from kvproof.live import contract_check
from kvproof.live.known.ingredients import without
from kvproof.model.errors import AdapterDrift
from kvproof.model.facts.loop import Call, Played
from kvproof.model.facts.startup import Startup
from kvproof.model.plans.engine import EnginePlan, Layer, given, lines
from kvproof.model.plans.messages import Cancel, More, Pause, Resume, Send, Stop
from kvproof.model.plans.random_engines import COUNTED, random_engine
from kvproof.model.traces.trace import PlanRun, write_in
from tests import fake_sides, in_vllm
from tests.fake_sides import FakeSide
from tests.in_vllm import Change
from tests.mistakes_of_engines import MANAGERS, MISTAKES, PROC, UTILS, Shown

IN_0_32 = {"pages_are_of_own_layers", "engine_survives", "plenty_of_memory_is_enough"}
"""What start-ups of the installed release break, with pages of several sizes on several stages.
Some models it refuses; the gate reports those that head alone refuses."""

IN_STORES = {"events_have_tokens_of_their_hash"}
"""What loops with a store break: `findings/stored_event_has_other_tokens`."""

LATE_ENDS = {"idle_engine_has_no_waiting_request"}
"""What sessions break where steps overlap: `findings/late_end_loses_session`."""

UNPUBLISHED = "idle_engine_has_published"
"""What loops of the installed release break: aibrix#2287."""


def test_a_plan_is_drawn_from_its_number_printed_and_read_back() -> None:
    plans = [random_engine(number) for number in range(400)]
    for number, plan in enumerate(plans):
        assert plan == random_engine(number)
        assert msgspec.convert(msgspec.to_builtins(plan), EnginePlan) == plan
        assert len(lines(plan)) == len(plan.layers) + len(plan.actions) + 2
        assert all(plan.workers())
    kinds = {layer.kind for plan in plans for layer in plan.layers}
    attention = {"full", "window", "chunked", "mla", "window mla", "sink"}
    assert kinds == attention | {"mamba", "hidden", "ring", "rswa"}
    actions = {type(each).__name__ for plan in plans for each in plan.actions}
    pauses = "Pause", "Resume", "Sleep", "Wake"
    assert actions == {*("Send", "More", "Cancel", "Arrive", "Compile", "Reset", "Stop"), *pauses}
    ways = {(plan.is_given, bool(plan.actions), plan.connected) for plan in plans}
    assert ways == {
        *((True, True, connected) for connected in (False, True)),
        *((False, True, connected) for connected in (False, True)),
        (False, False, False),
    }


def test_every_rule_has_a_mistake() -> None:
    rules = {check.id for check in checks_of(Startup, Played) if not check.ideal}
    assert {each.finds for each in MISTAKES.values()} == rules


def takes() -> Callable[[EnginePlan], list[Any]]:
    pytest.importorskip("vllm")
    return around_scheduler.taken


def loses_a_late_end(plan: EnginePlan) -> bool:
    """Whether a plan has sessions and steps that overlap, and without the latter breaks nothing of
    `LATE_ENDS`: the finding was at work."""
    if not (plan.overlaps and any(isinstance(each, More) for each in plan.actions)):
        return False
    seen = takes()(replace(plan, overlaps=False))
    return not LATE_ENDS & {each.invariant for one in seen for each in broken(one)}


def ends_what_pools(plan: EnginePlan) -> bool:
    """Whether a plan has a model that pools, and its engine survives if nothing but a client ends a
    request: `findings/engine_abort_ends_pooling_front` was at work."""
    other = without("aborts_by_the_engine", plan) if plan.pools else None
    return other is not None and "engine_survives" not in {
        each.invariant for one in takes()(other) for each in broken(one)
    }


@pytest.mark.live
@pytest.mark.parametrize("engines", [160, pytest.param(400, marks=pytest.mark.nightly)])
def test_engines_of_the_installed_release_keep_the_rules(engines: int) -> None:
    taken, came, tally = takes(), Counter[str](), Tally()
    for number in range(engines):
        for one in taken(random_engine(number)):
            found = {each.invariant for each in broken(one, tally)}
            if isinstance(one, Startup):
                came["refused" if one.refused else "accepted"] += 1
                came["served"] += bool(one.run and one.run.ended)
                assert found <= IN_0_32, lines(one.plan)
                continue
            if found & LATE_ENDS:
                assert loses_a_late_end(one.plan), lines(one.plan)
            if one.died:
                assert one.died.place == "AssertionError in process_outputs"
                assert ends_what_pools(one.plan), lines(one.plan)
                found -= {"engine_survives"}
            assert found <= {UNPUBLISHED, *IN_STORES, *LATE_ENDS}, lines(one.plan)
            came["vectors"] += one.plan.pools * sum(bool(each.tokens) for each in one.requests)
            came["unpublished"] += UNPUBLISHED in found
            came["answered"] += sum(bool(each.ends) for each in one.requests)
            came["paused"] += sum(wait.paused for wait in one.waits)
            came["exited"] += one.exited
            for front, received in one.waits[-1].received if one.waits else ():
                came[front] += received.transfers
            came["masks"] += sum(len(each.masks) for each in one.requests)
            sent = [each for each in one.plan.actions if isinstance(each, Send)]
            stopped = {each.name for each in one.requests if "stop" in each.ends}
            came["repeated"] += sum("repetition" in each.ends for each in one.requests)
            came["ended early"] += sum(e.stops < e.answer for e in sent if e.request in stopped)
            came["wrong drafts"] += one.plan.misses > 0
            came["by priority"] += one.plan.by_priority
            thinks = {each.request for each in sent if each.thinks}
            came["after reasoning"] += sum(len(e.masks) for e in one.requests if e.name in thinks)
            came["on planned sizes"] += not one.plan.is_given
            came["parts of sessions"] += sum(each.parts for each in one.requests)
            came["left the front"] += sum(each.leaves for each in sent)
    kinds = ("served", "refused", "answered", "paused", "exited", "masks", "after reasoning")
    also = "AsyncLLM", "LLMEngine", "on planned sizes", "parts of sessions", "left the front"
    models = "ended early", "repeated", "wrong drafts", "by priority", "vectors"
    fewest = min(came[kind] for kind in (*kinds, *also, *models))
    assert fewest >= 8, came
    assert came["served"] >= engines // 2, came
    assert [e.id for e in checks_of(Startup, Played) if not tally.judged[e.id]] == []


@pytest.mark.live
def test_requests_that_ended_together_leave_in_order() -> None:
    """Whatever the seed of hashes: a connector stores what they leave, and frees it, in order."""
    takes()
    from kvproof.live.core.engine import PLENTY_BYTES
    from kvproof.live.core.engine import Engine as LiveEngine

    plan, left = given(), list[str]()
    engine = LiveEngine(plan, [PLENTY_BYTES], plan.blocks)
    engine.add(engine.request("r", [1, 2], 1))
    ended = {f"r{number}" for number in range(20)}
    engine.core.scheduler.finished_req_ids = set(ended)
    engine.executor.began = lambda output: left.extend(output.finished_req_ids)
    engine.step()
    engine.close()
    assert left == sorted(ended)


@pytest.mark.live
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an engine in which the installed release keeps the check."""
    taken = takes()
    taken(random_engine(0))
    planted = MISTAKES[mistake]
    rule, shown = planted.finds, planted.shown_by or Shown()

    def breaks(plan: EnginePlan) -> bool:
        seen = list[Any]()
        with nullcontext() if not plan.is_given else suppress(AdapterDrift):  # vLLM may refuse it
            seen = taken(plan)
        return rule in {each.invariant for one in seen for each in broken(one)}

    for number in dict.fromkeys((shown.first, *range(240))):
        plan = random_engine(number, shown.like)
        with monkeypatch.context() as patch:
            planted.patch(patch)
            found = breaks(plan)
        if found and not (rule in {*IN_0_32, UNPUBLISHED} and breaks(plan)):
            return
    pytest.fail(f"240 engines do not break {rule}")


@pytest.mark.live
def test_a_request_that_cannot_be_prepared_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that reads messages goes on with the next ones, as vLLM's does."""

    def fails(right: Any, self: Any, request: Any) -> Any:
        assert request.request_id != "r0"
        return right(self, request)

    in_vllm.around("vllm.v1.engine.core:EngineCore.preprocess_add_request", fails)(monkeypatch)
    seen = takes()(given(tuple(Send(0, name, 0, 3, 1) for name in ("r0", "r1"))))[-1]
    assert (seen.died, {each.name: each.ends for each in seen.requests}) == (
        None,
        {"r0": ("error",), "r1": ("length",)},
    )
    assert {each.invariant for each in broken(seen)} == {"sent_request_reaches_the_loop"}


@pytest.mark.live
def test_a_request_that_kvproof_cannot_prepare_is_no_defect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread of vLLM would answer it with an error, as one that vLLM cannot prepare."""
    taken, right = takes(), "self.executor.submit(self._create_grammar, request)"
    place = "vllm.v1.structured_output:StructuredOutputManager.grammar_init"
    in_vllm.line(place, right, f"{right[:-1]}, request)")(monkeypatch)
    with pytest.raises(AdapterDrift, match=r"Grammars\.submit"):
        taken(given((Send(0, "r0", 0, 3, 1, grammar="compiles"),)))


@pytest.mark.live
def test_a_request_may_be_dropped_if_its_client_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def drops(right: Any, self: Any, request: Any) -> Any:
        assert request.request_id != "r0"
        return right(self, request)

    in_vllm.around("vllm.v1.engine.core:EngineCore.preprocess_add_request", drops)(monkeypatch)
    seen = takes()(given((Send(0, "r0", 0, 3, 1), Cancel(0, "r0"), Send(0, "r1", 0, 3, 1))))[-1]
    assert [(each.gone, each.lost) for each in seen.requests] == [(True, 1), (False, 0)]
    assert not [*broken(seen)]


@pytest.mark.live
def test_what_the_loop_took_is_judged_also_where_the_engine_ends_in_the_same_round() -> None:
    seen = takes()(given((Send(0, "r0", 0, 3, 1), Stop(0, drain=False))))[-1]
    assert seen.exited
    assert [(each.name, each.ends) for each in seen.requests] == [("r0", ("abort",))]


@pytest.mark.live
def test_an_engine_that_keeps_its_images_elsewhere_is_no_defect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def elsewhere(right: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        right(self, *args, **kwargs)
        self.images = vars(self).pop("mm_receiver_cache")

    takes()
    in_vllm.around("vllm.v1.engine.core:EngineCore.__init__", elsewhere)(monkeypatch)
    with pytest.raises(AdapterDrift, match="keeps its images elsewhere"):
        takes()(given((Send(0, "r0", 0, 3, 1, forgotten=True),)))


@pytest.fixture
def sockets() -> Any:
    pytest.importorskip("vllm")
    return importlib.import_module("kvproof.live.core.sockets").Sockets()


def process_input_sockets(ready: Event, read: list[str], text: str) -> None:
    """A thread of the name of the one that reads messages."""
    assert not ready.is_set(), "only the thread sets it"
    ready.set()
    read.append(text)


@pytest.mark.live
def test_a_thread_of_an_engine_works_with_all_that_it_is_given(sockets: Any) -> None:
    core = importlib.import_module("vllm.v1.engine.core")
    ready, read = Event(), list[str]()
    with sockets.making_threads():
        named = {"read": read, "text": "message"}
        core.threading.Thread(target=process_input_sockets, args=[ready], kwargs=named).start()
    assert ready.wait(), "the engine waits for it, and goes on"
    sockets.read()
    assert (ready.is_set(), read) == (True, ["message"])


@pytest.mark.live
@pytest.mark.parametrize("works", [takes, process_input_sockets])
def test_a_thread_that_would_never_work_is_no_defect(
    works: Callable[..., Any], sockets: Any
) -> None:
    """Of another function, or a second one of a known function. And one with a queue, which is not
    that of the loop that is driven."""
    core = importlib.import_module("vllm.v1.engine.core")
    with sockets.making_threads():
        with pytest.raises(AdapterDrift, match="a queue"):
            core.threading.Thread(target=process_input_sockets, args=(queue.Queue(),))
        core.threading.Thread(target=process_input_sockets)
        with pytest.raises(AdapterDrift, match=works.__name__):
            core.threading.Thread(target=works, daemon=True)


@pytest.mark.live
@pytest.mark.parametrize("kind", ["ADD", "UTILITY"])
def test_a_loop_that_gets_messages_elsewhere_loses_none(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests, or calls of clients, have a container of their own. Nobody sees what leaves it."""

    def puts(right: Any, queue: Any, message: Any, **more: Any) -> None:
        if message[0].name == kind:
            others.append(message)
            message = type(message[0]).WAKEUP, None
        right(queue, message, **more)

    def handles(right: Any, core: Any, *message: Any) -> None:
        right(core, *message)
        while others:
            right(core, *others.pop(0))

    taken, others = takes(), list[Any]()
    in_vllm.around("kvproof.live.core.engine:Messages.put", puts)(monkeypatch)
    in_vllm.around(f"{PROC}._handle_client_request", handles)(monkeypatch)
    actions = Send(0, "r0", 0, 3, 4), Pause(2, "keep"), Resume(2), Send(0, "r1", 0, 3, 1)
    with pytest.raises(AdapterDrift, match="gets messages elsewhere"):
        taken(given(actions))


@pytest.mark.live
def test_a_thread_that_collects_until_nothing_comes_is_told_so_once() -> None:
    """It would lose what it has collected if it gave up, and never end if it was told so always."""
    pytest.importorskip("vllm")
    fakes, clock = map(importlib.import_module, FAKES)
    answers, poller, socket = fakes.Outputs(), fakes.Poller(), fakes.Socket()
    poller.register(socket)
    for _ in range(2):
        answers.put((0, "answer"))
        socket.arrived.append([b"message"])
        assert (answers.get(timeout=1)[1], [*poller.poll(1)]) == ("answer", [(socket, 1)])
        socket.recv_multipart()
        with pytest.raises(queue.Empty):
            answers.get_nowait()
        assert not poller.poll(1)
        for waits in answers.get_nowait, partial(poller.poll, 1), answers.get, poller.poll:
            with pytest.raises(clock.ThreadIdle):
                waits()


FAKES = "kvproof.live.core.sockets", "kvproof.live.fakes.clock"


@pytest.mark.live
def test_an_engine_may_refuse_to_end_a_pause_that_is_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As that of data parallelism does. Its clients end the pause when it is complete."""

    def refuses(right: Any, core: Any) -> Any:
        assert not core.scheduler.running
        return right(core)

    in_vllm.around("vllm.v1.engine.core:EngineCore.resume_scheduler", refuses)(monkeypatch)
    sent = Send(0, "r0", 0, 3, 8), Pause(2, "wait"), Resume(0), Send(0, "r1", 0, 3, 1)
    seen = takes()(given(sent))[-1]
    assert [bool(each.failure) for each in seen.calls] == [False, True, False]
    assert {each.invariant for each in broken(seen)} <= {UNPUBLISHED}


@pytest.mark.live
def test_a_call_that_an_ending_engine_refuses_changes_nothing() -> None:
    """So the pause goes on, and the request waits for its end."""
    actions = Pause(8, "abort"), Send(3, "r0", 0, 3, 1), Stop(0, drain=True), Resume(0)
    seen = takes()(given(actions))[-1]
    assert seen.calls[-1] == Call("resume_scheduler", answers=1, failure="Server shutting down")
    assert seen.waits[-1].paused
    assert {each.invariant for each in broken(seen)} <= {UNPUBLISHED}


@pytest.mark.live
def test_answers_to_several_requests_do_not_depend_on_the_seed_of_hashes() -> None:
    takes()
    from vllm.v1.request import RequestStatus

    from kvproof.live.core.engine import PLENTY_BYTES, Engine

    engine = Engine(given(), [PLENTY_BYTES], given().blocks)
    names = [f"r{number}" for number in range(9)]
    for name in names:
        engine.add(engine.request(name, [1], 1))
    scheduler = engine.core.scheduler
    aborted = scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
    engine.core._send_abort_outputs(aborted)
    [answer] = engine.outputs()
    engine.close()
    assert [each.request_id for each in answer.outputs] == names


def _leaks(right: Any, self: Any, request: str) -> Any:
    """Return the blocks of a request that are to be freed, without one."""
    return right(self, request)[1:]


@pytest.mark.live
def test_messages_come_to_an_engine_whose_sizes_were_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a loop has layers that engines of given sizes do not have."""
    takes()
    in_vllm.around(f"{MANAGERS}:MambaManager.pop_blocks_for_free", _leaks)(monkeypatch)
    plans = map(random_engine, range(240))
    planned = (each for each in plans if each.actions and not each.is_given)
    with_states = tuple(each for each in planned if "mamba" in each.kinds)
    result = side_plans.driven(Engines("engines", plans=with_states))
    [found, *_] = [e for e in result.breaks if e.signature.check == "all_blocks_return"]
    assert found.signature.event == LOOP
    assert isinstance(found.plan, Engine)
    plan = found.plan.plan
    assert found.length == len(plan.layers) + len(plan.actions)
    alone = msgspec.structs.replace(plan, actions=())
    assert not side_plans.driven(Engine("alone", alone)).breaks


CONNECTED = EnginePlan(
    layers=(Layer("full", 4),),
    max_model_len=16,
    chunk_tokens=8,
    actions=(Send(0, "r0", 0, 4, 1),),
    connected=True,
)


@pytest.mark.live
def test_what_a_connector_refuses_is_no_mistake_of_the_start_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A NIXL connector has no place for layers of some kinds."""
    seen = takes()

    def refuses(self: Any, *_: Any, **__: Any) -> None:
        raise NotImplementedError("of layers that it does not know")

    assert isinstance(seen(CONNECTED)[-1], Played)
    in_vllm.instead(f"{in_vllm.NIXL_SCHEDULER}.__init__", refuses)(monkeypatch)
    came = seen(CONNECTED)
    assert {each.plan.connected for each in came} == {False}
    assert [isinstance(each, Startup) and bool(each.run) for each in came] == [True, True]
    run = Engine("refused", CONNECTED)
    assert side_plans.driven(run).unconnected == 1


@pytest.mark.live
def test_a_second_end_of_the_request_that_ran_alone_is_seen_in_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = takes()
    plan = msgspec.structs.replace(CONNECTED, connected=False, actions=(Pause(0, "abort"),))

    def again(right: Any, self: Any, aborted: Any) -> Any:
        return right(self, [*aborted, SimpleNamespace(client_index=0, request_id="alone")])

    in_vllm.around("vllm.v1.engine.core:EngineCoreProc._send_abort_outputs", again)(monkeypatch)
    loop = seen(plan)[-1]
    assert {each.invariant for each in broken(loop)} == {"request_ends_once"}


@pytest.mark.live
def test_p_leaves_the_last_token_of_each_prompt_to_d_where_a_layer_has_states() -> None:
    """vLLM notes in the parameters of a request that it has cut the prompt."""
    from kvproof.live.core.episode import offer

    layers = Layer("full", 4), Layer("mamba", 4, padded=True)
    plan = msgspec.structs.replace(given(connected=True), layers=layers)
    sent = (Send(0, "r", 0, length, 1, role="decode") for length in (2, 5, 8))
    offers = [offer(each, plan) for each in sent]
    assert [each["remote_num_tokens"] for each in offers] == [1, 4, 7]


@pytest.mark.live
@pytest.mark.parametrize("dies", [False, True])
def test_every_engine_of_a_start_is_closed(dies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it dies while it serves its first request."""
    seen, made, closed = takes(), list[int](), list[int]()

    def makes(right: Any, self: Any, *given: Any, **named: Any) -> None:
        right(self, *given, **named)
        made.append(1)

    def closes(right: Any, self: Any) -> None:
        closed.append(1)
        right(self)

    in_vllm.around(f"{in_vllm.SCHEDULER}.__init__", makes)(monkeypatch)

    def fails(*_: Any, **__: Any) -> None:
        raise KeyError("x")

    in_vllm.around(f"{in_vllm.SCHEDULER}.shutdown", closes)(monkeypatch)
    if dies:
        in_vllm.instead(f"{in_vllm.SCHEDULER}.schedule", fails)(monkeypatch)
    for number in range(12):
        seen(random_engine(number))
    assert len(closed) == len(made) > 8


@pytest.mark.live
def test_a_start_up_is_judged_where_its_loop_cannot_be_driven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    takes()
    planted = MISTAKES["half of the memory is used"]
    planted.patch(monkeypatch)
    require = contract_check.Contract.require

    def without_loops(self: Any, features: list[str]) -> None:
        if "engine loop" in features:
            raise AdapterDrift("This vLLM has no loop", "run_busy_loop")
        require(self, features)

    monkeypatch.setattr(contract_check.Contract, "require", without_loops)
    result = side_plans.driven(Engines("engines", 0, 20))
    assert (result.reason, result.without_loops) == ("", "This vLLM has no loop")
    assert planted.finds in {each.signature.check for each in result.breaks}
    assert len({each.whole for each in result.records}) == 2


class EngineSide(FakeSide):
    """A side with this mistake in its start-up."""

    ALONE = Lock()

    def __init__(self, mistake: str = "", plant: Change | None = None) -> None:
        super().__init__(self._started)
        self.mistake = mistake
        self.plant = MISTAKES[mistake].change if mistake else plant
        self.excused = False

    def drive(self, runs, *, excused=False, **more):  # type: ignore[no-untyped-def]
        self.excused = excused
        return super().drive(runs, **more)

    def _started(self, workload: Workload) -> Result:
        assert isinstance(workload, Engine | Engines)
        with self.ALONE, pytest.MonkeyPatch.context() as patch:
            if self.plant is not None:
                self.plant(patch)
            return side_plans.driven(workload, excused=self.excused)


def start_ups(number: int) -> Engines:
    """The first random engines that get no messages: of each, the start-up alone is judged."""
    plans = (each for each in map(random_engine, count()) if not each.actions)
    return Engines("engines", plans=tuple(islice(plans, number)))


@pytest.mark.live
def test_a_mistake_of_head_is_introduced_and_one_of_base_is_mended() -> None:
    takes()
    name = "one group is counted (vllm#36030)"
    for sides in ((EngineSide(), EngineSide(name)), (EngineSide(name), EngineSide())):
        with fake_sides.compared(*sides, start_ups(40)) as both:
            if sides[1].mistake:
                told = {each.found.signature.check for each in both.introduced}
                assert told == {"admitted_length_is_served"}
                again = both.introduced[0].found.plan
                assert isinstance(again, Engine)
                assert side_plans.in_words(again)
            else:
                assert not both.introduced
                kinds = {(kind, one.found.signature.check) for kind, one in both.of_base()}
                assert ("mended", "admitted_length_is_served") in kinds


@pytest.mark.live
def test_an_abort_that_ends_the_front_of_both_hides_no_vector_that_is_lost() -> None:
    """Base dies of the former by the same statement. It is no cost that head dies of each."""
    takes()
    alone = replace(given(), pools=True, actions=(Send(0, "r0", 0, 3, 1),))
    aborted = replace(alone, actions=(*alone.actions, Pause(0, "abort")))
    sides = EngineSide(), EngineSide("the vector of a request is lost")
    with fake_sides.compared(*sides, Engines("engines", plans=(alone, aborted))) as both:
        both.weigh_needs(lambda: True)
        assert {each.signature.check for each in both.on_base["engines"].breaks} == {
            "engine_survives"
        }
        assert [each.found.signature.check for each in both.introduced] == ["engine_survives"]


def _needs_more(right: Any, *arguments: Any) -> Any:
    """Ask for half more memory than the longest request takes."""
    return right(*arguments) * 3 // 2


@pytest.mark.live
def test_a_start_up_that_asks_for_more_memory_is_told_as_a_cost() -> None:
    """Alone, a start-up that counts with a bound has an excuse."""
    takes()
    plant = in_vllm.around(f"{UTILS}:_max_memory_usage_bytes_from_groups", _needs_more)
    head = EngineSide(plant=plant)
    with fake_sides.compared(EngineSide(), head) as both:
        both.drive([start_ups(60)])
        both.weigh_needs(lambda: True)
        told = {each.found.signature.check for each in both.costs}
        assert told == {"needed_blocks_are_enough"}


@pytest.mark.live
def test_one_rule_may_be_broken_for_a_cause_of_its_own_in_each_kind_of_engine() -> None:
    """So base's break in one kind does not hide head's in another, and each is tried in its own."""
    name = "half of the memory is used"
    side = EngineSide(name)
    [result] = side.drive([start_ups(40)])
    found = [each for each in result.breaks if each.signature.check == MISTAKES[name].finds]
    assert len({each.signature for each in found}) > 2
    one = next(each for each in found if ", " in each.signature.feature)
    tried = workloads.near(one.run("one"), "around", 1, 0, AT_ONCE)
    assert isinstance(tried, Engines)
    assert tried.like is not None
    [again] = side.drive([tried])
    assert len(again.records) == tried.episodes
    assert one.signature in {each.signature for each in again.breaks}
    of_it = {e.signature for e in again.breaks if e.signature.check == one.signature.check}
    assert of_it == {one.signature}


@pytest.mark.parametrize("what", ["store", "connected", "drafts"])
def test_fresh_engines_have_the_connector_and_the_drafts_of_the_one_they_are_like(
    what: str,
) -> None:
    like = next(plan for plan in map(random_engine, range(400)) if getattr(plan, what))
    kind = Engine("one", like)
    near = workloads.near(kind, "around", 1, 0, AT_ONCE)
    assert isinstance(near, Engines)
    found = [around_scheduler.single(near, number, "one") for number in range(AT_ONCE)]
    plans = [each.plan for each in found if each is not None]
    assert len(plans) == AT_ONCE
    assert {getattr(plan, what) for plan in plans} == {getattr(like, what)}


def _asks_for_more(self: Any, _config: Any) -> None:
    self.model_executor.get_something_new()[0]


def _has_more(self: Any, _config: Any) -> None:
    print(self.something_new)


@pytest.mark.live
@pytest.mark.parametrize("place", ["run_engine_core", "_perform_handshakes", ""])
def test_an_attribute_that_the_engine_core_forgot_to_set_is_its_death(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where a function of vLLM that does not run here may set it."""
    seen = takes()

    def forgot(self: Any, *_: Any) -> None:
        print(self.set_elsewhere)

    def sets(engine: Any) -> None:
        engine.set_elsewhere = 1

    in_vllm.instead("vllm.v1.engine.core:EngineCore._initialize_kv_caches", forgot)(monkeypatch)
    if place:
        core = importlib.import_module("vllm.v1.engine.core").EngineCoreProc
        made = staticmethod(sets) if place == "run_engine_core" else sets
        monkeypatch.setattr(core, place, made)
        with pytest.raises(AdapterDrift, match="set_elsewhere"):
            seen(random_engine(0, COUNTED))
        return
    [start] = seen(random_engine(0, COUNTED))
    assert start.died is not None
    assert start.died.exception == "AttributeError"


def _dies(*_: Any) -> None:
    raise RuntimeError("of a setting that is missing")


@pytest.mark.live
@pytest.mark.parametrize("wrong", [_asks_for_more, _has_more, _dies])
def test_a_start_up_that_kvproof_does_not_know_is_no_defect(
    wrong: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    takes()
    core = importlib.import_module("vllm.v1.engine.core").EngineCore
    monkeypatch.setattr(core, "_initialize_kv_caches", wrong)
    with pytest.raises(AdapterDrift, match=r"something_new|No engine of this vLLM starts"):
        side_plans.driven(Engines("engines", 0, 5))


@pytest.mark.live
@pytest.mark.parametrize(
    "mistake", ["a transfer is no work (vllm#43433)", "half of the memory is used"]
)
def test_a_break_is_written_as_a_plan_that_replays(
    mistake: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Any, as_json: Any
) -> None:
    takes()
    rule = MISTAKES[mistake].finds
    with monkeypatch.context() as patch:
        MISTAKES[mistake].patch(patch)
        found = side_plans.driven(Engines("engines", 0, 20)).keys.values()
        one = next(each for each in found if each.signature.check == rule)
        assert isinstance(one.plan, Engine)
        path = side_plans.written(one.plan, one.finding, rule, tmp_path)
        assert run("report", str(path))[0] == 0
        code, said, _ = run("replay", str(path))
        assert (code, "VIOLATED: " in said, f"{rule}, " in said) == (1, True, True)
    again = side_plans.driven(msgspec.structs.replace(one.plan, name="again"))
    assert (again.course.dead, rule in again.course.judged) == ("", True)
    for kind in (Startup, Played):  # what had nothing to judge is not judged
        assert not {check.id for check in checks_of(kind)} <= {*again.course.judged}
    left = {each.signature.check for each in again.breaks}
    assert left <= {"idle_engine_has_published"}  # aibrix#2287
    _, output = as_json("replay", str(path))
    assert (output["machine"], output["verdict"]) == ("live", "VIOLATED" if left else "SAMPLED")


def test_an_older_release_has_full_attention_in_place_of_a_ring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    plans = (random_engine(seed, {**COUNTED, "rings": True}) for seed in count())
    plan = next(each for each in plans if "ring" in {layer.kind for layer in each.layers})
    monkeypatch.setattr("kvproof.live.build.spec_or_full", lambda _: FullAttentionSpec)
    assert not side_plans.driven(Engine("older", plan)).breaks


HEADER = {"of": "engine core", "schema": 5, "kind": "kvproof-run", "seed": 0}
VERSIONS = {"kvproof": "0.1"}
SIZES = {"layers": [{"kind": "full", "block": 4}], "max_model_len": 16, "chunk_tokens": 8}
RESUMES = {"step": 1, "event": {"kind": "resume", "after": 0}}
END = {"end": {"steps": 1}}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (({"layers": [{"kind": "full", "block": 4}], "actions": []},), "Use commit 53d205f8"),
        (({"engine": {"name": "E"}, "actions": []},), "Use commit 53d205f8"),
        ((HEADER,), "missing required field `versions`"),
        (({"layers": []}, RESUMES, END), "Line 1"),
        (({"layers": [{"kind": "odd"}]}, RESUMES, END), "$.config.layers[0].kind"),
        ((SIZES | {"actions": [RESUMES["event"]]}, END), "has actions in its header"),
        ((SIZES, RESUMES | {"event": {"type": "Drain"}}, END), "Line 2"),
        ((SIZES, RESUMES | {"step": 2}, END), "is step 2 where step 1 belongs"),
        ((SIZES, RESUMES), "cut off"),
    ],
)
def test_a_file_without_a_whole_plan_is_refused(
    lines: tuple[dict[str, Any], ...], says: str, tmp_path: Path, refused: Any
) -> None:
    first, *rest = lines
    if len(lines) > 1:
        first = HEADER | {"versions": VERSIONS, "config": first}
    path = tmp_path / "plan.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (first, *rest)))
    assert says in refused("replay", str(path))
    assert says in refused("report", str(path))


def test_a_plan_is_of_real_vllm_alone(tmp_path: Path, refused: Any) -> None:
    path = write_in(tmp_path, "plan", PlanRun(given((Send(0, "r0", 0, 4, 1),))))
    assert "Use --machine live" in refused("replay", str(path), "--machine", "model")
    assert "has no finding" in refused("replay", str(path), "--releases", "0.32.0")
