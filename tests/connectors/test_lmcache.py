"""LMCacheMPConnector over LMCache in memory: it is whole."""

from typing import Any

import msgspec
import pytest

from kvproof.gate.difference.workload import Play
from kvproof.gate.side import plans as side_plans
from kvproof.live.connectors.episode import EpisodeResult
from kvproof.live.connectors.judging import mixed_up
from kvproof.model.plans.connector import (
    Action,
    ConnectorPlan,
    Copies,
    Drain,
    Fail,
    Forget,
    ResetCache,
    SubmitRequest,
)
from tests.connectors import played as episodes
from tests.connectors.played import EARLY, engine_of, rules

NAMES = ("lmcache", "lmcache-wide")
ENGINE = engine_of(num_blocks=20, chunk_tokens=5)


def prompt(tokens: int, **more: Any) -> SubmitRequest:
    """A request with a prompt of this family."""
    return SubmitRequest(0, tokens, **more)


def played(name: str, *actions: Action, copies: Copies = EARLY) -> EpisodeResult:
    """An episode of these actions."""
    return episodes.played(name, *actions, engine=ENGINE, copies=copies)


AGAIN: tuple[Action, ...] = (prompt(17), Drain(), ResetCache(), prompt(17), Drain())

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
    breaks = side_plans.driven(Play("", name, plan)).breaks
    assert {each.signature.feature for each in breaks} == {f"{other} of full of full"}


@pytest.mark.parametrize("name", NAMES)
def test_a_server_that_forgets_or_fails_gives_no_wrong_token(name: str) -> None:
    for lost in (Forget(), Fail(times=2, raises=True)):
        assert not rules(played(name, *AGAIN[:3], lost, *AGAIN[3:]))
