"""The search for a plan that breaks a check ends in that plan made smaller, or in the first one."""

import json
import shlex
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.gate.connectors import alone, search
from kvproof.gate.connectors.search import PlanSearch
from kvproof.gate.connectors.shown import shown
from kvproof.live.blame import is_ours
from kvproof.live.connectors.episode import EpisodeResult, play
from kvproof.live.connectors.layouts import layouts
from kvproof.live.connectors.shipped import BENCH
from kvproof.live.connectors.subject import TestedConnector
from kvproof.live.fakes import copies, streams
from kvproof.live.fakes.peers import PeerContext
from kvproof.model.because import reason
from kvproof.model.config import EngineConfig, Group
from kvproof.model.finding import Finding
from kvproof.model.plans.connector import ConnectorPlan, RunSteps, SubmitRequest
from kvproof.model.traces.lines import NamedConnector
from kvproof.model.traces.trace import PlanRun, write_in
from tests.connectors.mistakes import DiesAtShutdown
from tests.connectors.played import LOADED
from tests.connectors.store import GlobalStore, SaltlessStore, Store

RULE = "every_request_ends"
BROKEN = reason("broken", "it is broken")
ONE_GROUP = layouts(several=False)[0]


def played_as(plan: ConnectorPlan, *checks: str) -> Any:
    """A plan that was played, and breaks these checks."""
    breaks: Any = [
        SimpleNamespace(
            signature=SimpleNamespace(check=check), at=1, finding=Finding(check, (BROKEN, BROKEN))
        )
        for check in checks
    ]
    result = EpisodeResult((), 1, len(plan.actions), Counter())
    return SimpleNamespace(plan=plan, first=lambda *_: breaks, result=result)


def of_odd_plans(_name: str, _subject: object, plan: ConnectorPlan) -> Any:
    """A plan that breaks a check if it has an odd number of actions above four."""
    breaks = len(plan.actions) > 4 and len(plan.actions) % 2
    return played_as(plan, *[RULE] * breaks)


def test_a_plan_is_made_smaller_in_the_same_way_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "PlayedPlan", of_odd_plans)
    monkeypatch.setattr(search, "accepted", lambda *_: [ONE_GROUP])
    found, again = search.search(BENCH, 100, 0), search.search(BENCH, 100, 0)
    assert found.rule == RULE
    assert found.played is not None
    assert again.played is not None
    plan = found.played.plan
    assert len(plan.actions) == 5
    assert all(action == plainer(action) for action in plan.actions)
    assert (again.played.plan, again.episodes, again.tries) == (plan, found.episodes, found.tries)
    assert found.tries > 5


def plainer(action: Any) -> Any:
    """A request with the shortest prompt and nothing beside it."""
    if isinstance(action, SubmitRequest):
        return SubmitRequest(action.family, 1)
    return RunSteps() if isinstance(action, RunSteps) else action


@pytest.mark.nightly
def test_a_search_goes_on_after_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of five actions show a finding of vLLM, and longer ones something new."""

    def of_plans(name: str, subject: object, plan: ConnectorPlan) -> Any:
        known.clear()
        known.update({RULE: "a_finding"} if len(plan.actions) == 5 else {})
        return of_odd_plans(name, subject, plan)

    known: dict[str, str] = {}
    monkeypatch.setattr(search, "PlayedPlan", of_plans)
    monkeypatch.setattr(search, "accepted", lambda *_: [ONE_GROUP])
    found = search.search(BENCH, 100, 0, known=lambda _: known)
    assert found.played is not None
    assert len(found.played.plan.actions) == 7
    found = search.search(BENCH, 100, 0, known=lambda _: {RULE: "a_finding"})
    assert 50 < found.episodes <= 100  # no plan is played twice
    assert found.played is None
    assert "Known: in " in "\n".join(shown(BENCH, found))


def test_what_breaks_beside_a_known_finding_is_not_hidden() -> None:
    found = search.PlanSearch()
    both = played_as(ONE_GROUP, RULE, "engine_survives")
    assert found.take(both, lambda _: {RULE: "a_finding"})
    assert found.played is both
    assert not found.known
    assert found.rule == "engine_survives"
    assert found.breaks[0].signature.check == "engine_survives"


def wrong(call: str) -> Exception:
    """What a file of vLLM raises that makes this call."""
    made: dict[str, Any] = {"copies": copies, "streams": streams, "join": "".join}
    with pytest.raises(TypeError) as raised:
        exec(compile(call, "/vllm/v1/worker.py", "exec"), made)
    return raised.value


@pytest.mark.parametrize(
    "call",
    [
        "copies.swap_blocks()",
        "copies.swap_blocks(1, 2, 3, 4, 5, 6, 7, 8, 9)",
        "streams.Event().record(1, 2, 3, 4)",
        "streams.Event().query(timeout=1)",
    ],
)
def test_what_the_device_does_not_take_is_no_mistake_of_vllm(call: str) -> None:
    assert is_ours(wrong(call))


@pytest.mark.parametrize("call", ["join(1)", "len()", "(lambda: 1)(2)", "1 + ''"])
def test_another_wrong_call_is_one(call: str) -> None:
    assert not is_ours(wrong(call))


@pytest.mark.parametrize("extra", ["{}", '{"cpu_bytes_to_use": "much"}'])
def test_settings_with_which_vllm_makes_no_connector_are_bad_input(
    refused: Any, extra: str, tmp_path: Path
) -> None:
    name = "OffloadingConnector"
    plan = write_in(tmp_path, "plan", PlanRun(ONE_GROUP, NamedConnector(name, json.loads(extra))))
    search = "connector", name, "--extra", extra, "--examples", "1"
    for command in (search, ("replay", str(plan), "--trust")):
        text = refused(*command)
        assert f"{name} cannot be made" in text
        assert "spec.py, line" in text


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("FILE:Store", {}),
        ("os:Store", {}),
        ("OffloadingConnector", {"spec_module_path": "planted"}),
        ("MultiConnector", {"connectors": [{"kv_connector_module_path": "planted"}]}),
        ("ExampleConnector", {"shared_storage_path": "{tmp}/../.."}),
    ],
)
def test_a_plan_of_somebody_else_imports_nothing(
    name: str, extra: dict[str, Any], refused: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text("raise SystemExit('it was imported')")
    monkeypatch.chdir(tmp_path)
    named = NamedConnector(name.replace("FILE", str(planted)), extra)
    path = write_in(tmp_path, "plan", PlanRun(ONE_GROUP, named))
    assert "Use --trust if you know where the file is from." in refused("replay", str(path))


@pytest.mark.parametrize(
    "extra",
    [
        {"connectors": 3},
        {"connectors": [1]},
        {"connectors": [{}]},
        {"connectors": [{"kv_connector": "A", "kv_connector_extra_config": 1}]},
        {"secondary_tiers": [None]},
        {"ec_transfer_config": 3},
    ],
)
def test_settings_whose_parts_cannot_be_read_are_bad_input(
    extra: dict[str, Any], refused: Any
) -> None:
    assert "setting " in refused("connector", "MultiConnector", "--extra", json.dumps(extra))


def test_what_the_device_lacks_is_no_mistake_of_vllm() -> None:
    context: Any = PeerContext(None)  # type: ignore[arg-type]
    with pytest.raises(AttributeError) as raised:
        context.term()
    assert is_ours(raised.value)


class DiesAtSomeStarts(Store):
    """An engine whose steps overlap cannot be made."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        if vllm_config.scheduler_config.async_scheduling:
            raise KeyError(role)


@pytest.mark.parametrize("kind", [DiesAtShutdown, DiesAtSomeStarts])
def test_the_printed_command_replays_with_the_settings_of_the_search(
    kind: type, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alone, "confirm", lambda *_: None)
    monkeypatch.setattr("kvproof.gate.connectors.search.TRIES_MAX", 10)
    name = f"{kind.__module__}:{kind.__name__}"
    settings = ("--keeps-prompts", "--extra", '{"a": "{tmp}"}', "--traces", str(tmp_path / "a b"))
    code, out, _ = run("connector", name, *settings, "--examples", "20")
    assert code == 1
    broken, command = out.splitlines()[0], out[out.index("Replay it: ") :].splitlines()[0]
    program, *arguments = shlex.split(command.removeprefix("Replay it: "))
    assert program == "kvproof"
    assert arguments[0] == "replay"
    code, out, _ = run(*arguments)
    assert (code, out.splitlines()[0]) == (1, broken)


# Stores that outlive their engines


ENGINE = EngineConfig("E", (Group("full", 2),), num_blocks=16)


def plan_of(*requests: SubmitRequest) -> ConnectorPlan:
    """Requests that come one after the other."""
    return ConnectorPlan(ENGINE, tuple(each for one in requests for each in (one, RunSteps(6))))


OTHER, PLAIN = SubmitRequest(1, 8), SubmitRequest(0, 8)
SALTED = SubmitRequest(0, 8, beside="salt")


def subject(kind: type) -> TestedConnector:
    """A store, without what earlier tests have left."""
    kind.kept.clear()  # type: ignore[attr-defined]
    return TestedConnector(f"{kind.__module__}:{kind.__name__}")


def broken(store: TestedConnector, *requests: SubmitRequest) -> set[str]:
    """The rules that requests break."""
    return {each.invariant for each in play(store, plan_of(*requests)).findings}


def test_kv_that_an_earlier_engine_stored_keeps_its_meaning() -> None:
    """The numbers of its prefixes are those of each engine."""
    right = subject(GlobalStore)
    assert not play(right, plan_of(PLAIN)).findings
    result = play(right, plan_of(OTHER, PLAIN))
    assert result.judged["promised tokens"]
    assert not result.findings


def test_a_store_that_forgets_salts_is_found_in_one_episode_and_over_two() -> None:
    wrong = subject(SaltlessStore)
    assert LOADED in broken(wrong, SALTED, PLAIN)
    wrong = subject(SaltlessStore)
    assert not broken(wrong, PLAIN)
    wrong = subject(SaltlessStore)
    assert not broken(wrong, SALTED)
    assert LOADED in broken(wrong, PLAIN)


@pytest.mark.nightly
def test_alone_an_episode_finds_nothing_of_earlier_ones() -> None:
    wrong = subject(SaltlessStore)
    assert alone.broken_alone(wrong, plan_of(PLAIN)) == ()
    assert LOADED in (alone.broken_alone(wrong, plan_of(SALTED, PLAIN)) or ())


def found(small: ConnectorPlan, first: ConnectorPlan) -> PlanSearch:
    """A search that has made the plan that it found first smaller."""
    one, before = played_as(small, LOADED), played_as(first, LOADED)
    return PlanSearch(rule=LOADED, played=one, before=before)


@pytest.mark.parametrize(
    ("breaks", "told", "needs_earlier"),
    [("small first", "small", False), ("first", "first", False), ("", "small", True)],
)
def test_the_plan_that_is_told_breaks_its_rule_alone_if_one_does(
    breaks: str, told: str, needs_earlier: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = {"small": plan_of(PLAIN), "first": plan_of(SALTED, PLAIN)}
    showing = [plans[name] for name in breaks.split()]
    monkeypatch.setattr(alone, "broken_alone", lambda _, plan: (LOADED,) * (plan in showing))
    searched = found(plans["small"], plans["first"])
    alone.confirm(BENCH, searched)
    assert searched.played is not None
    assert searched.played.plan == plans[told]
    assert searched.needs_earlier is needs_earlier
    assert any("earlier" in line for line in shown(BENCH, searched)) is needs_earlier


def test_a_plan_that_breaks_once_alone_ends_no_search_in_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an episode needs of earlier ones may be gone when it is played again."""
    played: Counter[ConnectorPlan] = Counter()

    def breaks_first(_name: str, _subject: object, plan: ConnectorPlan) -> Any:
        played[plan] += 1
        breaks = len(plan.actions) > 4 and played[plan] == 1
        return played_as(plan, *[LOADED] * breaks)

    monkeypatch.setattr(search, "PlayedPlan", breaks_first)
    monkeypatch.setattr(search, "accepted", lambda *_: [ONE_GROUP])
    assert search.search(BENCH, 100, 0).rule == LOADED
    assert max(played.values()) == 1
