"""Which call of a store or of a network fails, and how often what was asked came to be."""

from collections import Counter
from typing import Any, get_args

import pytest

from kvproof.live.connectors.episode import EpisodeResult
from kvproof.live.connectors.search import PlanSearch
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.live.connectors.shown import shown
from kvproof.live.fakes.mooncake import Store
from kvproof.live.fakes.store_client import ASKED, FAILED
from kvproof.model.plans.connector import (
    Call,
    ConnectorPlan,
    Drain,
    Fail,
    RunSteps,
    SubmitRequest,
)
from tests.connectors.played import AGAIN, engine_of, played, rules

CALLS = [call for call in get_args(Call) if call]
FIRST, DRAINED, FORGOTTEN, SECOND = AGAIN

STORE = "mooncake-store"


def loaded_while(name: str, call: Any, value: int | None = None, times: int = 8) -> EpisodeResult:
    """An episode in which calls fail while a prompt is stored, or while it is loaded again."""
    fails = Fail(times, call=call, value=value)
    stored = (fails, FIRST) if call == "put" else (FIRST, DRAINED, fails)
    return played(name, *stored, DRAINED, FORGOTTEN, SECOND, Drain())


@pytest.mark.parametrize("call", CALLS)
def test_only_the_calls_fail_that_were_asked_to(call: str) -> None:
    for name in (STORE, "lmcache"):
        result = loaded_while(name, call)
        known = {"every_request_ends"} if name == "lmcache" else set()
        assert rules(result) <= known  # `failed_load_stays_noted`
        failed = {each.removeprefix(FAILED) for each in result.judged if each.startswith(FAILED)}
        assert failed == {call}
        assert result.judged[ASKED + call] == 8
        assert bool(result.judged["blocks that were not loaded"]) == (call == "get")
        assert bool(result.judged["offers"]) == (call == "get")


def test_one_block_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a store says of each block is told apart: of three, one is not loaded."""
    for call, count in ("look-up", 0), ("put", 0), ("get", 1):
        result = loaded_while(STORE, call, 1, 1)
        assert result.findings == ()
        assert result.judged["offers"] == 1
        assert result.judged["blocks that were not loaded"] == count
        tokens = result.judged["promised tokens"]
        assert tokens == (0 if call == "get" else 2 * 4)  # none is loaded behind the block
    right: Any = Store.batch_get_into_multi_buffers

    def blind(store: Any, keys: Any, *more: Any) -> list[int]:
        answers: list[int] = right(store, keys, *more)
        return [max(answers)] * len(answers)

    monkeypatch.setattr(Store, "batch_get_into_multi_buffers", blind)
    assert "promised_tokens_are_loaded" in rules(loaded_while(STORE, "get", 1, 1))


def test_a_failure_that_did_not_happen_is_told() -> None:
    plan = ConnectorPlan(engine_of(), (SubmitRequest(0, 14), RunSteps(), Fail(5, call="get")))
    result = played("mooncake-store", *plan.actions)
    found = PlanSearch(episodes=1, judged=Counter(result.judged), plan=None)
    text = "\n".join(shown(SHIPPED["mooncake-store"].subject, found))
    assert "5 of the next gets were asked to fail, and 0 did." in text
    assert "Of 1 requests, 0 were offered tokens and 0 loaded" in text
