"""The loop of a real engine on drawn plans, and what the checks say of it."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvproof.gate.difference.workload import Loop, Loops
from kvproof.gate.side import around_scheduler
from kvproof.gate.side.around_scheduler import broken
from kvproof.invariants.check import Tally
from kvproof.invariants.registry import checks_of
from kvproof.model.facts.loop import Played
from kvproof.model.plans.engine import EnginePlan, given, lines
from kvproof.model.plans.messages import Pause, Resume, Send, Stop
from kvproof.model.plans.random_loops import random_loop
from tests.mistakes_of_loops import MISTAKES


def test_a_plan_is_drawn_from_its_number_printed_and_read_back() -> None:
    for number in range(200):
        plan = random_loop(number)
        assert plan == random_loop(number)
        assert msgspec.convert(msgspec.to_builtins(plan), EnginePlan) == plan
        assert len(lines(plan)) == len(plan.layers) + len(plan.actions) + 2
    kinds = {type(each).__name__ for number in range(60) for each in random_loop(number).actions}
    pauses = "Pause", "Resume", "Sleep", "Wake"
    assert kinds == {*("Send", "Cancel", "Arrive", "Compile", "Reset", "Stop"), *pauses}


def test_every_rule_has_a_mistake() -> None:
    assert {rule for _, rule in MISTAKES.values()} == {check.id for check in checks_of(Played)}


def plays() -> Callable[[EnginePlan], Played]:
    pytest.importorskip("vllm")
    return lambda plan: around_scheduler.taken(plan)[-1]


@pytest.mark.live
def test_the_loop_of_the_installed_release_keeps_the_rules() -> None:
    play, came, tally = plays(), Counter[str](), Tally()
    for number in range(300):
        seen = play(random_loop(number))
        came["answered"] += sum(bool(each.ends) for each in seen.requests)
        came["paused"] += sum(wait.paused for wait in seen.waits)
        came["exited"] += seen.exited
        for front, received in seen.waits[-1].received if seen.waits else ():
            came[front] += received.transfers
        came["masks"] += sum(len(each.masks) for each in seen.requests)
        thinks = {
            each.request for each in seen.plan.actions if isinstance(each, Send) and each.thinks
        }
        came["after reasoning"] += sum(len(e.masks) for e in seen.requests if e.name in thinks)
        breaks = [each.invariant for each in broken(seen, tally)]
        came["unpublished"] += breaks == ["idle_engine_has_published"]  # aibrix#2287
        assert {*breaks} <= {"idle_engine_has_published"}, lines(random_loop(number))
    assert came["answered"] >= 1000
    assert came["paused"] >= 50
    assert came["exited"] >= 20
    assert came["masks"] >= 200
    assert min(came["AsyncLLM"], came["LLMEngine"]) >= 50
    assert came["after reasoning"] >= 50
    assert [each.id for each in checks_of(Played) if not tally.judged[each.id]] == []


@pytest.mark.live
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    play = plays()
    play(random_loop(0))
    plant, rule = MISTAKES[mistake]
    plant(monkeypatch)
    for number in range(200):
        if rule in {each.invariant for each in broken(play(random_loop(number)))}:
            return
    pytest.fail(f"200 plans do not break {rule}")


@pytest.mark.live
def test_a_call_that_an_ending_engine_refuses_changes_nothing() -> None:
    """So the pause goes on, and the request waits for its end."""
    actions = Pause(8, "abort"), Send(3, "r0", 0, 3, 1), Stop(0, drain=True), Resume(0)
    seen = plays()(given(actions))
    assert seen.calls[-1] == ("resume_scheduler", 1)
    assert (seen.waits[-1].paused, [*broken(seen)]) == (True, [])


@pytest.mark.live
def test_answers_to_several_requests_do_not_depend_on_the_seed_of_hashes() -> None:
    plays()
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


@pytest.mark.live
def test_a_break_is_written_as_a_plan_that_replays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: Any
) -> None:
    plays()
    plant, rule = MISTAKES["a transfer is no work (vllm#43433)"]
    with monkeypatch.context() as patch:
        plant(patch)
        found = around_scheduler.driven(Loops("loops", 0, 40)).keys.values()
        one = next(each for each in found if each.signature.check == rule)
        assert isinstance(one.plan, Loop)
        path, words = around_scheduler.written(one.plan, rule, tmp_path)
        assert words[0].startswith("engine: ")
        code, said, _ = run("replay", str(path))
        assert (code, f"{rule}, " in said) == (1, True)
    again = around_scheduler.driven(msgspec.structs.replace(one.plan, name="again"), 0)
    assert (again.breaks, again.course.dead, rule in again.course.judged) == ((), "", True)
    code, said, _ = run("replay", str(path))
    assert (code, "SAMPLED: no check is broken" in said) == (0, True)
