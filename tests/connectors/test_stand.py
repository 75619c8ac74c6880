"""A loop that stands, its sockets open: of an engine, of its peer, or of the store."""

from typing import Any

import pytest

from kvproof.cli.connector import _like
from kvproof.live.connectors.episode import EpisodeResult
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.model.plans.connector import (
    PREFILLED,
    SOURCE,
    AbortRequest,
    ConnectorPlan,
    Copies,
    Drain,
    ResetCache,
    RunSteps,
    Stand,
    SubmitRequest,
    TransferParams,
)
from tests.connectors.played import AGAIN, LATE, NIXL, PROMPTS, engine_of, played, rules

FOR_LONG = 100
"""More steps than any engine waits for an answer."""

ENDS = "every_request_ends"
CLIENT = "vllm.v1.kv_offload.tiering.p2p.session.client"


def asks(before: int, route: TransferParams = ((SOURCE, 0),), steps: int = FOR_LONG) -> Any:
    """The second engine asks the first one, which stands after so many steps."""
    ran = [RunSteps(before)] * bool(before)
    asked = SubmitRequest(0, 14, 2, asks=route)
    return SubmitRequest(0, 14, 2), Drain(), asked, *ran, Stand("first", steps), Drain()


def peers(*actions: Any) -> EpisodeResult:
    return played("offloading-peers", *actions, copies=LATE)


@pytest.mark.parametrize("before", range(1, 4))
def test_a_request_ends_although_its_peer_stands_for_a_while(before: int) -> None:
    assert peers(*asks(before, steps=5)).findings == ()
    assert not rules(peers(*asks(before, ((PREFILLED, 1),))))


def test_a_look_up_that_is_never_answered_is_known() -> None:
    """vllm#56823: not before the handshake, and not when the answer has come."""
    assert not rules(peers(*asks(0)))
    assert not rules(peers(*asks(2)))
    assert rules(peers(*asks(1))) == {ENDS}  # mended in vLLM 0.33.0
    plan = ConnectorPlan(engine_of(), asks(1), copies=LATE)
    like = _like(SHIPPED["offloading-peers"].subject, plan)
    assert [(each.name, each.at_work) for each in like.values()] == [
        ("look_up_has_no_deadline", True)
    ]


def test_a_load_without_a_deadline_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not rules(peers(*asks(3)))
    monkeypatch.setattr(f"{CLIENT}._LOAD_TIMEOUT_S", float("inf"))
    assert not rules(peers(*asks(3, steps=12)))
    assert rules(peers(*asks(3))) == {ENDS}


@pytest.mark.parametrize("name", [*NIXL, "mooncake"])
@pytest.mark.parametrize("who", ["first", "second"])
def test_messages_wait_for_an_engine_that_stands(name: str, who: Any) -> None:
    plan = (*PROMPTS, RunSteps(2), Stand(who, 12), PROMPTS[0], RunSteps(3), AbortRequest(1))
    result = played(name, *plan, Drain(), ResetCache(), *PROMPTS, copies=LATE)
    assert not rules(result) - {"statistics_count_once"}
    assert result.judged["loads"] >= 4


@pytest.mark.parametrize("steps", [20, 40, 49])
def test_who_goes_on_has_time_to_end(steps: int) -> None:
    """P keeps its blocks for a while after it has gone on, because D has given up."""
    actions = SubmitRequest(0, 7, 2), RunSteps(), Stand("first", steps), Drain()
    assert played("mooncake", *actions, copies=LATE).findings == ()


def test_a_write_that_never_comes_is_known() -> None:
    """`write_awaited_for_ever`: P has forgotten what D, which registered late, waits for."""
    actions = SubmitRequest(0, 7, 2), RunSteps(), Stand("first", FOR_LONG)
    assert rules(played("nixl-push", *actions, copies=LATE)) == {ENDS}
    like = _like(SHIPPED["nixl-push"].subject, ConnectorPlan(engine_of(), actions, copies=LATE))
    assert [each.name for each in like.values() if each.at_work] == ["write_awaited_for_ever"]


def test_a_request_that_waits_for_a_store_that_stands_does_not_wait_for_ever() -> None:
    """Its look-up is answered when the threads of the store go on."""
    result = played("offloading-files", Stand("store", FOR_LONG), SubmitRequest(0, 4), Drain())
    assert result.findings == ()


@pytest.mark.parametrize("name", ["mooncake-store", "lmcache", "offloading-kept"])
def test_what_a_slow_store_has_not_stored_yet_is_not_offered(name: str) -> None:
    prompt, *_ = AGAIN
    slow = prompt, RunSteps(), Stand("store", 30), RunSteps(3), ResetCache(), prompt, Drain()
    first = played(name, *slow, copies=Copies())
    assert first.findings == ()
    result = played(name, *slow, ResetCache(), prompt, Drain(), copies=Copies())
    assert result.findings == ()
    assert result.judged["loads"] > first.judged["loads"]
