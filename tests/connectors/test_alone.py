"""Connectors that keep what they stored when their engine has ended, in the process of the kit."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.live.connectors import alone, search
from kvproof.live.connectors.drawn import ALONE
from kvproof.live.connectors.episode import EpisodeResult, play
from kvproof.live.connectors.search import PlanSearch
from kvproof.live.connectors.shipped import BENCH
from kvproof.live.connectors.shown import shown
from kvproof.live.connectors.subject import TestedConnector
from kvproof.model.config import EngineConfig, Group
from kvproof.model.plans.connector import ConnectorPlan, RunSteps, SubmitRequest
from tests.connectors.global_store import GlobalStore, SaltlessStore

RULE = "promised_tokens_are_loaded"
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
    assert RULE in broken(wrong, SALTED, PLAIN)
    wrong = subject(SaltlessStore)
    assert not broken(wrong, PLAIN)
    wrong = subject(SaltlessStore)
    assert not broken(wrong, SALTED)
    assert RULE in broken(wrong, PLAIN)


@pytest.mark.nightly
def test_alone_an_episode_finds_nothing_of_earlier_ones() -> None:
    wrong = subject(SaltlessStore)
    assert alone.broken_alone(wrong, plan_of(PLAIN)) == ()
    assert RULE in (alone.broken_alone(wrong, plan_of(SALTED, PLAIN)) or ())


def found(small: ConnectorPlan, first: ConnectorPlan) -> PlanSearch:
    """A search that has made the plan that it found first smaller."""
    findings: Any = (SimpleNamespace(invariant=RULE, sentences=("a", "b")),)
    result = EpisodeResult(findings, 1, 1, Counter())
    return PlanSearch(plan=small, result=result, first=(first, result))


@pytest.mark.parametrize(
    ("breaks", "told", "needs_earlier"),
    [("small first", "small", False), ("first", "first", False), ("", "small", True)],
)
def test_the_plan_that_is_told_breaks_its_rule_alone_if_one_does(
    breaks: str, told: str, needs_earlier: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = {"small": plan_of(PLAIN), "first": plan_of(SALTED, PLAIN)}
    showing = [plans[name] for name in breaks.split()]
    monkeypatch.setattr(alone, "broken_alone", lambda _, plan: (RULE,) * (plan in showing))
    searched = found(plans["small"], plans["first"])
    alone.confirm(BENCH, searched)
    assert searched.plan == plans[told]
    assert searched.needs_earlier is needs_earlier
    assert any("earlier" in line for line in shown(BENCH, searched)) is needs_earlier


def test_a_plan_that_breaks_once_alone_ends_no_search_in_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an episode needs of earlier ones may be gone when it is played again."""
    played: Counter[ConnectorPlan] = Counter()

    def breaks_first(_: Any, plan: ConnectorPlan) -> EpisodeResult:
        played[plan] += 1
        found: Any = (SimpleNamespace(invariant=RULE),)
        breaks = len(plan.actions) > 4 and played[plan] == 1
        return EpisodeResult(found * breaks, 1, 1, Counter())

    monkeypatch.setattr(search, "play", breaks_first)
    monkeypatch.setattr(search, "accepted", lambda *_: list(ALONE[:1]))
    assert search.search(BENCH, 100, 0).rule == RULE
    assert max(played.values()) == 1
