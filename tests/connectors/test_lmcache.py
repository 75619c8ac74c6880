"""LMCacheMPConnector over LMCache in memory: it is whole, and three planted mistakes are found."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

pytest.importorskip("vllm")


from kvproof.connectors.episode import EpisodeResult, play
from kvproof.connectors.judging import mixed_up
from kvproof.connectors.plan import (
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
from kvproof.connectors.shipped import SHIPPED
from kvproof.gate.difference.workload import Play
from kvproof.gate.search import connector_plans
from kvproof.model.config import EngineConfig, Group

pytestmark = pytest.mark.live

Plant = Callable[[pytest.MonkeyPatch], None]
NAMES = ("lmcache", "lmcache-wide")
ENGINE = EngineConfig("E", (Group("full", 4),), num_blocks=20, chunk_tokens=5)


def prompt(tokens: int, **more: Any) -> SubmitRequest:
    """A request with a prompt of this family."""
    return SubmitRequest(0, tokens, **more)


def played(name: str, *actions: Action, copies: Copies | None = None) -> EpisodeResult:
    """An episode of these actions."""
    plan = ConnectorPlan(ENGINE, actions, copies=copies or Copies())
    return play(SHIPPED[name].subject, plan)


def rules(result: EpisodeResult) -> set[str]:
    """The rules that it breaks."""
    return {finding.invariant for finding in result.findings}


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


def salts_are_dropped(patch: pytest.MonkeyPatch) -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1 import lmcache_mp_connector as home

    begin: Any = home.LMCacheMPRequestTracker.__init__

    def without(self: Any, request: Any) -> None:
        begin(self, request)
        self.cache_salt = ""

    patch.setattr(home.LMCacheMPRequestTracker, "__init__", without)


def more_is_stored_than_computed(patch: pytest.MonkeyPatch) -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1 import lmcache_mp_connector as home

    count: Any = home.LMCacheMPRequestTracker.increase_num_scheduled_tokens
    patch.setattr(
        home.LMCacheMPRequestTracker,
        "increase_num_scheduled_tokens",
        lambda self, tokens: count(self, 2 * tokens),
    )


def own_hits_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """As before vllm#39719."""
    from vllm.distributed.kv_transfer.kv_connector.v1 import lmcache_mp_connector as home

    made: Any = home.LMCacheMPRequestMetadata.GetStoreMetadata

    def store(tracker: Any, *more: Any, **named: Any) -> Any:
        hit, tracker.num_vllm_hit_blocks = tracker.num_vllm_hit_blocks, 0
        try:
            return made(tracker, *more, **named)
        finally:
            tracker.num_vllm_hit_blocks = hit

    patch.setattr(home.LMCacheMPRequestMetadata, "GetStoreMetadata", staticmethod(store))


PLANTED: dict[str, tuple[Plant, tuple[Action, ...], str]] = {
    "salts": (salts_are_dropped, SALTED, "promised_tokens_are_loaded"),
    "too much": (more_is_stored_than_computed, AGAIN, "promised_tokens_are_loaded"),
    "too little": (own_hits_are_not_counted, HITS_MORE, "stored_prefix_is_offered"),
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
