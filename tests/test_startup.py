"""The start-up of real vLLM on drawn layers, workers and memory, and what the checks say of it."""

import importlib
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Loops, Start, Starts, Workload
from kvproof.gate.search import workloads
from kvproof.gate.search.trial import AT_ONCE
from kvproof.gate.side import around_scheduler
from kvproof.gate.side.around_scheduler import broken
from kvproof.invariants.check import Tally
from kvproof.invariants.registry import checks_of
from kvproof.live import contract_check
from kvproof.model.errors import AdapterDrift
from kvproof.model.facts.loop import Played
from kvproof.model.facts.startup import Startup
from kvproof.model.plans.engine import EnginePlan, lines
from kvproof.model.plans.messages import Pause
from kvproof.model.plans.random_starts import random_start
from tests import fake_sides, in_vllm
from tests.fake_sides import FakeSide
from tests.in_vllm import Change
from tests.mistakes_of_starts import MISTAKES, UTILS

MANAGERS = "vllm.v1.core.single_type_kv_cache_manager"

IN_0_32 = {"pages_are_of_own_layers", "engine_survives", "plenty_of_memory_is_enough"}
"""What the installed release breaks, with pages of several sizes on several stages. Some models it
refuses; the gate reports those that head alone refuses."""


def test_a_plan_is_drawn_from_its_number_printed_and_read_back() -> None:
    for number in range(200):
        plan = random_start(number)
        assert plan == random_start(number)
        assert msgspec.convert(msgspec.to_builtins(plan), EnginePlan) == plan
        assert len(lines(plan)) == len(plan.layers) + len(plan.actions) + 2
        assert all(plan.workers())
    kinds = {layer.kind for number in range(60) for layer in random_start(number).layers}
    assert kinds == {"full", "window", "chunked", "mla", "window mla", "mamba", "hidden", "sink"}


def test_a_start_without_a_layer_is_a_part_shorter() -> None:
    run = Start("s", msgspec.json.decode(msgspec.json.encode(random_start(3))))
    assert run.without(0, 1).parts == run.parts[1:]
    assert msgspec.json.decode(msgspec.json.encode(run), type=Workload) == run


def test_every_rule_has_a_mistake() -> None:
    rules = {check.id for check in checks_of(Startup) if not check.ideal}
    assert {rule for _, rule in MISTAKES.values()} == rules


def starts() -> Callable[[EnginePlan], list[Any]]:
    pytest.importorskip("vllm")
    return around_scheduler.taken


@pytest.mark.live
def test_starts_of_the_installed_release_keep_the_rules() -> None:
    seen, came, tally = starts(), Counter[str](), Tally()
    for number in range(200):
        for one in seen(random_start(number)):
            if isinstance(one, Startup):
                came["refused" if one.refused else "accepted"] += 1
                came["served"] += bool(one.run and one.run.ended)
            else:
                came["answered"] += sum(bool(each.ends) for each in one.requests)
                came["transfers"] += one.waits[-1].noted.transfers
            found = {each.invariant for each in broken(one, tally)}
            assert found <= IN_0_32, lines(random_start(number))
    assert came["served"] >= 280
    assert came["refused"] >= 30
    assert came["answered"] >= 100
    assert came["transfers"] >= 20
    assert [each.id for each in checks_of(Startup) if not tally.judged[each.id]] == []


@pytest.mark.live
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = starts()
    seen(random_start(0))
    plant, rule = MISTAKES[mistake]
    plant(monkeypatch)
    for number in range(120):
        if rule in {
            each.invariant for start in seen(random_start(number)) for each in broken(start)
        }:
            return
    pytest.fail(f"120 starts do not break {rule}")


def _leaks(right: Any, self: Any, request: str) -> Any:
    """Return the blocks of a request that are to be freed, without one."""
    return right(self, request)[1:]


@pytest.mark.live
def test_messages_come_to_an_engine_whose_sizes_were_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a loop has layers that engines of given sizes do not have."""
    starts()
    in_vllm.around(f"{MANAGERS}:MambaManager.pop_blocks_for_free", _leaks)(monkeypatch)
    result = around_scheduler.driven(Starts("starts", 0, 120))
    [found, *_] = [e for e in result.breaks if e.signature.check == "all_blocks_return"]
    assert found.signature.event == "Loop"
    assert isinstance(found.plan, Start)
    layers = [*found.plan.plan["layers"]]
    assert "mamba" in {each["kind"] for each in layers}
    assert found.plan.parts == [*layers, *found.plan.plan["actions"]]
    alone = found.plan.without(len(layers), found.length)
    assert (alone.plan["layers"], alone.plan["actions"]) == (layers, [])
    assert not around_scheduler.driven(alone).breaks


def connected() -> EnginePlan:
    """The first plan that goes on with a connector."""
    return next(p for p in map(random_start, count()) if p.connected and not p.auto)


@pytest.mark.live
def test_what_a_connector_refuses_is_no_mistake_of_the_start_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A NIXL connector has no place for layers of some kinds."""
    seen = starts()

    def refuses(self: Any, *_: Any, **__: Any) -> None:
        raise NotImplementedError("of layers that it does not know")

    assert isinstance(seen(connected())[-1], Played)
    in_vllm.instead(f"{in_vllm.NIXL_SCHEDULER}.__init__", refuses)(monkeypatch)
    came = seen(connected())
    assert {each.plan.connected for each in came} == {False}
    assert [isinstance(each, Startup) and bool(each.run) for each in came] == [True, True]
    run = Start("refused", msgspec.to_builtins(connected()))
    assert around_scheduler.driven(run).unconnected == 1


@pytest.mark.live
def test_a_second_end_of_the_request_that_ran_alone_is_seen_in_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = starts()
    plan = msgspec.structs.replace(connected(), connected=False, actions=(Pause(0, "abort"),))

    def again(right: Any, self: Any, aborted: Any) -> Any:
        return right(self, [*aborted, SimpleNamespace(client_index=0, request_id="alone")])

    in_vllm.around("vllm.v1.engine.core:EngineCoreProc._send_abort_outputs", again)(monkeypatch)
    loop = seen(plan)[-1]
    assert {each.invariant for each in broken(loop)} == {"request_ends_once"}


@pytest.mark.live
@pytest.mark.parametrize("dies", [False, True])
def test_every_engine_of_a_start_is_closed(dies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it dies while it serves its first request."""
    seen, made, closed = starts(), list[int](), list[int]()

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
        seen(random_start(number))
    assert len(closed) == len(made) > 8


@pytest.mark.live
def test_a_start_up_is_judged_where_its_loop_cannot_be_driven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts()
    plant, rule = MISTAKES["half of the memory is used"]
    plant(monkeypatch)
    require = contract_check.Contract.require

    def without_loops(self: Any, features: list[str]) -> None:
        if "engine loop" in features:
            raise AdapterDrift("This vLLM has no loop", "run_busy_loop")
        require(self, features)

    monkeypatch.setattr(contract_check.Contract, "require", without_loops)
    result = around_scheduler.driven(Starts("starts", 0, 20))
    assert (result.reason, result.without_loops) == ("", "This vLLM has no loop")
    assert rule in {each.signature.check for each in result.breaks}
    assert len({each.whole for each in result.records}) == 2
    with pytest.raises(AdapterDrift, match="no loop"):
        around_scheduler.driven(Loops("loops", 0, 1))


class StartSide(FakeSide):
    """A side with this mistake in its start-up."""

    ALONE = Lock()

    def __init__(self, mistake: str = "", plant: Change | None = None) -> None:
        super().__init__(self._started)
        self.mistake = mistake
        self.plant = MISTAKES[mistake][0] if mistake else plant
        self.place: int | None = None
        self.excused = False

    def drive(self, runs, *, place=None, excused=False, **more):  # type: ignore[no-untyped-def]
        self.place, self.excused = place, excused
        return super().drive(runs, place=place, **more)

    def _started(self, workload: Workload) -> Result:
        assert isinstance(workload, Start | Starts)
        with self.ALONE, pytest.MonkeyPatch.context() as patch:
            if self.plant is not None:
                self.plant(patch)
            return around_scheduler.driven(workload, self.place, excused=self.excused)


@pytest.mark.live
def test_a_mistake_of_head_is_introduced_and_one_of_base_is_mended() -> None:
    starts()
    name = "one group is counted (vllm#36030)"
    for sides in ((StartSide(), StartSide(name)), (StartSide(name), StartSide())):
        with fake_sides.compared(*sides) as both:
            both.drive([Starts("starts", 0, 40)])
            both.confirm(["starts"])
            if sides[1].mistake:
                assert {each.found.signature.check for each in both.introduced} == {
                    "admitted_length_is_served"
                }
                again = both.introduced[0].found.plan
                assert isinstance(again, Start)
                assert around_scheduler.in_words(again)
            else:
                assert not both.introduced
                kinds = {(kind, one.found.signature.check) for kind, one in both.of_base()}
                assert ("mended", "admitted_length_is_served") in kinds


def _needs_more(right: Any, *arguments: Any) -> Any:
    """Ask for half more memory than the longest request takes."""
    return right(*arguments) * 3 // 2


@pytest.mark.live
def test_a_start_up_that_asks_for_more_memory_is_told_as_a_cost() -> None:
    """Alone, a start-up that counts with a bound has an excuse."""
    starts()
    plant = in_vllm.around(f"{UTILS}:_max_memory_usage_bytes_from_groups", _needs_more)
    head = StartSide(plant=plant)
    with fake_sides.compared(StartSide(), head) as both:
        both.drive([Starts("starts", 0, 60)])
        both.weigh_needs(lambda: True)
        told = {each.found.signature.check for each in both.costs}
        assert told == {"needed_blocks_are_enough"}


@pytest.mark.live
def test_one_rule_may_be_broken_for_a_cause_of_its_own_in_each_kind_of_engine() -> None:
    """So base's break in one kind does not hide head's in another, and each is tried in its own."""
    name = "half of the memory is used"
    side = StartSide(name)
    [result] = side.drive([Starts("starts", 0, 40)])
    found = [each for each in result.breaks if each.signature.check == MISTAKES[name][1]]
    assert len({each.signature for each in found}) > 2
    one = next(each for each in found if ", " in each.signature.feature)
    tried = workloads.near(one.run("one"), "around", 1, 0, AT_ONCE)
    assert isinstance(tried, Starts)
    assert tried.like is not None
    [again] = side.drive([tried])
    assert again.steps == tried.plans
    assert one.signature in {each.signature for each in again.breaks}
    of_it = {e.signature for e in again.breaks if e.signature.check == one.signature.check}
    assert of_it == {one.signature}


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
    seen = starts()

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
            seen(random_start(0))
        return
    [start] = seen(random_start(0))
    assert start.died is not None
    assert start.died.exception == "AttributeError"


def _dies(*_: Any) -> None:
    raise RuntimeError("of a setting that is missing")


@pytest.mark.live
@pytest.mark.parametrize("wrong", [_asks_for_more, _has_more, _dies])
def test_a_start_up_that_kvproof_does_not_know_is_no_defect(
    wrong: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    starts()
    core = importlib.import_module("vllm.v1.engine.core").EngineCore
    monkeypatch.setattr(core, "_initialize_kv_caches", wrong)
    with pytest.raises(AdapterDrift, match=r"something_new|No engine of this vLLM starts"):
        around_scheduler.driven(Starts("starts", 0, 5))


@pytest.mark.live
def test_a_plan_is_started_again_by_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any, as_json: Any
) -> None:
    seen = starts()
    plant, rule = MISTAKES["half of the memory is used"]
    plant(monkeypatch)
    wrong = next(
        plan
        for plan in map(random_start, range(120))
        if rule in {each.invariant for start in seen(plan) for each in broken(start)}
    )
    path, words = around_scheduler.written(Start("", msgspec.to_builtins(wrong)), rule, tmp_path)
    assert words == tuple(lines(wrong))
    code, said, _ = run("replay", str(path))
    assert (code, "VIOLATED: " in said, "memory_becomes_blocks, " in said) == (1, True, True)
    monkeypatch.undo()
    code, output = as_json("replay", str(path))
    assert (code, output["verdict"], output["machine"]) == (0, "SAMPLED", "live")


def test_a_file_without_a_plan_is_refused(tmp_path: Path, run: Any) -> None:
    path = tmp_path / "plan.json"
    older = '{"block": 4, "actions": [{"kind": "resume", "after": 0}]}'
    for text in ("", "{}", '{"layers": []}', '{"layers": [{"kind": "odd"}]}', older):
        path.write_text(text)
        code, _, error = run("replay", str(path))
        assert (code, " Use " in " ".join(error.split())) == (2, True)
