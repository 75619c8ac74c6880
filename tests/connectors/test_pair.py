"""P and D with a connector between them: what the plans of test_episodes.py do not show."""

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from kvproof.live.connectors.drawn import NARROWER
from kvproof.live.connectors.episode import play
from kvproof.live.connectors.pair import in_its_blocks
from kvproof.live.connectors.shipped import SHIPPED, as_driven
from kvproof.live.fakes.clock import Clock
from kvproof.live.fakes.nixl import CopyingAgent
from kvproof.live.fakes.store_client import FAILED
from kvproof.model.facts.connectors import MayFail
from kvproof.model.plans.connector import (
    ConnectorPlan,
    Copies,
    Drain,
    Fail,
    ResetCache,
    Restart,
    RunSteps,
    Stand,
    SubmitRequest,
    Unlike,
)
from tests.connectors.played import LATE, NIXL, PROMPTS, engine_of, played, rules

NAMES = "NixlConnector", "MooncakeStoreConnector"
BOTH = [{"kv_connector": each, "kv_role": "kv_both"} for each in NAMES]


def test_a_read_whose_message_is_lost_keeps_the_blocks_until_the_lease_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CopyingAgent, "send_notif", lambda *_: None)
    assert played("nixl-pull", *PROMPTS, copies=LATE).findings == ()
    monkeypatch.setattr(Clock, "tick", lambda _: None)  # no lease ends where no time passes
    assert "kept_blocks_are_given_back" in rules(played("nixl-pull", *PROMPTS, copies=Copies()))


@pytest.mark.parametrize("unlike", ["model", "dtype"])
@pytest.mark.parametrize("name", NIXL)
def test_where_nobody_looks_wrong_tokens_are_found(name: str, unlike: Unlike) -> None:
    """vLLM can be told not to look whether P and D fit."""
    subject = SHIPPED[name].subject
    trusting = dataclasses.replace(
        subject, extra={**subject.extra, "enforce_handshake_compat": False}
    )
    plan = ConnectorPlan(engine_of(num_blocks=64), (SubmitRequest(0, 14, 2),), unlike=unlike)
    assert play(trusting, plan).findings[0].invariant == "promised_tokens_are_loaded"
    assert not play(trusting, replace(plan, unlike="")).findings


def test_as_many_tokens_are_in_narrower_blocks() -> None:
    plan = replace(NARROWER[0], kernel_blocks=2)
    narrow = in_its_blocks(plan, "P")
    assert in_its_blocks(plan, "D") is plan
    assert narrow.engine.num_blocks == 2 * plan.engine.num_blocks
    assert narrow.engine.groups[0].block_size == 4
    assert narrow.kernel_blocks == 1


# A store beside the connector between P and D


def test_settings_with_a_connector_between_engines_drive_two_and_those_of_stores_one() -> None:
    subject = as_driven("MultiConnector", {"connectors": BOTH}, keeps_prompts=False)
    assert subject.pair
    assert subject.classes == SHIPPED["multi-nixl-store"].subject.classes
    twice = (*PROMPTS, Drain(), ResetCache(), *PROMPTS, Drain())
    result = play(subject, ConnectorPlan(engine_of(), twice, copies=LATE))
    assert result.findings == ()
    assert result.judged["kept requests"] >= 4
    extra: dict[str, Any] = {"connectors": BOTH[1:]}
    assert not as_driven("MultiConnector", extra, keeps_prompts=False).pair


def test_a_store_that_fails_is_no_mistake_of_a_pair() -> None:
    failing = (*PROMPTS, Drain(), ResetCache(), Fail(8, call="get"), *PROMPTS, Drain())
    result = played("multi-nixl-store", *failing, load_failure="recompute")
    assert not rules(result)
    assert any(result.judged[f"{FAILED}{call}"] for call in ("get", "")), result.judged


def test_an_engine_that_stands_while_its_peer_is_away_may_fail_it() -> None:
    """The peer comes back before the loop goes on."""
    seen: list[bool] = []

    def note(_engines: Any, moment: Any) -> bool:
        seen.append(any(isinstance(fact, MayFail) for fact in moment.facts))
        return True

    plan = ConnectorPlan(engine_of(), (Restart(), Stand("first", 2), RunSteps()))
    play(SHIPPED["offloading-peers"].subject, plan, note)
    assert seen[1]
