"""LMCacheMPConnector over LMCache in memory: it is whole, and three planted mistakes are found."""

from typing import Any

import msgspec
import pytest

pytest.importorskip("vllm")


from kvproof.gate.difference.workload import Play
from kvproof.gate.side import connector_plans
from kvproof.live.connectors.episode import EpisodeResult
from kvproof.live.connectors.judging import mixed_up
from kvproof.model.plans.connector import (
    AbortRequest,
    Action,
    ConnectorPlan,
    Copies,
    Drain,
    Fail,
    Forget,
    ResetCache,
    RunSteps,
    SubmitRequest,
)
from tests.connectors import played as episodes
from tests.connectors.played import EARLY, LOADED, engine_of, rules
from tests.in_vllm import Change, around

pytestmark = pytest.mark.live

NAMES = ("lmcache", "lmcache-wide")
ENGINE = engine_of(num_blocks=20, chunk_tokens=5)


def prompt(tokens: int, **more: Any) -> SubmitRequest:
    """A request with a prompt of this family."""
    return SubmitRequest(0, tokens, **more)


def played(name: str, *actions: Action, copies: Copies = EARLY) -> EpisodeResult:
    """An episode of these actions."""
    return episodes.played(name, *actions, engine=ENGINE, copies=copies)


AGAIN: tuple[Action, ...] = (prompt(17), Drain(), ResetCache(), prompt(17), Drain())
SALTED: tuple[Action, ...] = (*AGAIN[:3], prompt(17, beside="salt"), Drain())
HITS_MORE: tuple[Action, ...] = (
    prompt(21),
    prompt(21, max_tokens=2),
    RunSteps(3),
    AbortRequest(0),
    prompt(24, max_tokens=4),
    Drain(),
    ResetCache(),
    prompt(21),
    Drain(),
)
"""The third request hits more in the cache of its engine than LMCache has by then."""

LATE = Copies(late=True, steps=1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("copies", [Copies(), LATE], ids=str)
def test_a_prompt_that_comes_again_is_loaded(name: str, copies: Copies) -> None:
    result = played(name, *AGAIN, copies=copies)
    assert not result.findings
    assert result.judged["promised tokens"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_kv_of_another_adapter_is_kept_apart(name: str) -> None:
    """vllm#44250, which is open."""
    actions = (*AGAIN[:3], prompt(17, beside="lora"), Drain())
    result = played(name, *actions)
    assert rules(result) == {"promised_tokens_are_loaded", "request_reads_its_own_tokens"}
    other = "another adapter's KV"
    assert {mixed_up(finding) for finding in result.findings} == {other}
    plan = msgspec.to_builtins(ConnectorPlan(ENGINE, actions))
    breaks = connector_plans.driven(Play("", name, plan)).breaks
    assert {each.signature.feature for each in breaks} == {f"{other} of full of full"}


@pytest.mark.parametrize("name", NAMES)
def test_a_server_that_forgets_or_fails_gives_no_wrong_token(name: str) -> None:
    for lost in (Forget(), Fail(times=2, raises=True)):
        assert not rules(played(name, *AGAIN[:3], lost, *AGAIN[3:]))


def salts_are_dropped(begin: Any, self: Any, request: Any) -> None:
    begin(self, request)
    self.cache_salt = ""


def own_hits_are_not_counted(made: Any, tracker: Any, *more: Any, **named: Any) -> Any:
    """As before vllm#39719."""
    hit, tracker.num_vllm_hit_blocks = tracker.num_vllm_hit_blocks, 0
    try:
        return made(tracker, *more, **named)
    finally:
        tracker.num_vllm_hit_blocks = hit


HOME = "vllm.distributed.kv_transfer.kv_connector.v1.lmcache_mp_connector"
TRACKER = f"{HOME}:LMCacheMPRequestTracker"
PLANTED: dict[str, tuple[Change, tuple[Action, ...], str]] = {
    "salts": (around(f"{TRACKER}.__init__", salts_are_dropped), SALTED, LOADED),
    "too much": (
        around(
            f"{TRACKER}.increase_num_scheduled_tokens",
            lambda right, self, tokens: right(self, 2 * tokens),
        ),
        AGAIN,
        LOADED,
    ),
    "too little": (
        around(f"{HOME}:LMCacheMPRequestMetadata.GetStoreMetadata", own_hits_are_not_counted),
        HITS_MORE,
        "stored_prefix_is_offered",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_mistake_is_named(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, actions, rule = PLANTED[planted]
    assert not played("lmcache", *actions, copies=LATE).findings
    plant(monkeypatch)
    result = played("lmcache", *actions, copies=LATE)
    assert rule in rules(result)
    if planted != "too little":
        other = "another salt's KV" if planted == "salts" else ""
        assert {mixed_up(finding) for finding in result.findings} == {other}
