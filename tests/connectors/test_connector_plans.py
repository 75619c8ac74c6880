"""The comparison of two vLLMs by a connector, with the real kit: base and head have stores of the
tests as the connector that vLLM ships, one of them with a planted mistake."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from kvproof.gate.difference.protocol import Accepts
from kvproof.gate.difference.result import Result
from kvproof.gate.difference.workload import Play, Plays, Workload
from kvproof.gate.search.comparison import Comparison
from kvproof.gate.search.shorter import shorter
from kvproof.gate.side import connector_plans
from kvproof.gate.side import plans as side_plans
from kvproof.live import adapt
from kvproof.live.connectors.episode import play
from kvproof.live.connectors.judging import mixed_up
from kvproof.live.connectors.shipped import SHIPPED, Shipped
from kvproof.live.connectors.subject import TestedConnector
from kvproof.live.store import Storeless
from kvproof.model.plans.connector import ConnectorPlan, Drain, ResetCache, SubmitRequest
from kvproof.model.traces.lines import NamedConnector
from kvproof.model.traces.trace import PlanRun
from kvproof.model.traces.trace_reader import read_run
from tests import fake_sides
from tests.connectors.mistakes import RULE_OF
from tests.connectors.played import AGAIN, BESIDE_WINDOW, FULL, engine_of
from tests.connectors.test_mistakes_of_vllm import PLANTED
from tests.cover import others_nightly
from tests.fake_sides import FakeSide

ONE_AT_A_TIME = Lock()
DRAWN = [Plays(f"plans, part {part}", "ours", part, 12) for part in range(6)]


class KitSide(FakeSide):
    """A side with this class as the connector that vLLM ships."""

    def __init__(self, kind: str) -> None:
        super().__init__(self._played)
        self.shipped = Shipped(TestedConnector(kind), ("ours",))

    def accepts(self, connector: str) -> Accepts:
        with ONE_AT_A_TIME:
            SHIPPED["ours"] = self.shipped
            return connector_plans.accepts(connector)

    def _played(self, workload: Workload) -> Result:
        assert isinstance(workload, Play | Plays)
        with ONE_AT_A_TIME:
            SHIPPED["ours"] = self.shipped
            return side_plans.driven(workload)


@pytest.fixture(autouse=True)
def _ours(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # What vLLM forgets of unused embeddings (vllm#56655) shows in a store that is right, too.
    monkeypatch.setattr(adapt, "mixes_embeddings", lambda: False)
    yield
    SHIPPED.pop("ours", None)


def both(base: str, head: str, drawn: Iterable[Plays] = DRAWN) -> "Iterator[Comparison]":
    with fake_sides.compared(KitSide(base), KitSide(head)) as found:
        for workload in drawn:
            found.drive([workload])
            found.confirm([workload.name])
            if found.introduced:
                break
        yield found


MISTAKES = {
    "LayersAreSwapped": "Store",
    "NegativeMatch": "Store",
    "LoadNeverEnds": "LaterStore",
    "LoadIsReportedTwice": "LaterStore",
}
"""Mistakes, and the store in which each is planted."""


@pytest.mark.parametrize("mistake", others_nightly(MISTAKES, ["LayersAreSwapped"]))
def test_a_mistake_of_head_is_introduced_and_one_of_base_is_mended(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvproof.gate.search.shorter.RUNS_MAX", 8)
    wrong, rule = f"tests.connectors.mistakes:{mistake}", RULE_OF[mistake]
    right = f"tests.connectors.store:{MISTAKES[mistake]}"
    shows: list[Plays] = []
    for found in both(right, wrong):
        shows += [each for each in DRAWN if each.name in found.names]
        assert rule in {one.found.signature.check for one in found.introduced}
        assert not list(found.of_base())
        one = next(one for one in found.introduced if one.found.signature.check == rule)
        short = shorter(found, one, float("inf")).found
        assert short.length <= one.found.length
        assert short.plan is not None
        path = side_plans.written(short.plan, short.finding, rule, tmp_path)
        kept = read_run(path)
        assert isinstance(kept, PlanRun)
        assert kept.connector == NamedConnector("ours")
        assert len(kept.lines) > short.length
        assert isinstance(kept.plan, ConnectorPlan)
        assert rule in {each.invariant for each in play(TestedConnector(wrong), kept.plan).findings}
    for found in both(wrong, right, shows):
        assert not found.introduced
        told = {(kind, one.found.signature.check) for kind, one in found.of_base()}
        assert ("mended", rule) in told


class WrongBesideAWindow(Storeless):
    """It keeps the blocks of an ended request for ever where there are several cache groups."""

    groups_min = 2

    def request_finished_all_groups(self, *_: object) -> Any:
        return len(self._kv_cache_config.kv_cache_groups) >= self.groups_min, None


class WrongAlways(WrongBesideAWindow):
    """It does so always."""

    groups_min = 1


@pytest.mark.nightly
def test_a_mistake_of_base_in_other_cache_groups_hides_none_of_head() -> None:
    here = "tests.connectors.test_connector_plans"
    for found in both(f"{here}:WrongBesideAWindow", f"{here}:WrongAlways"):
        features = {one.found.signature.feature for one in found.introduced}
        assert features
        assert all("window" not in each and "mamba" not in each for each in features)


def test_what_the_scheduler_counts_beside_other_groups_is_one_mistake() -> None:
    """P counts a request of `mooncake` each time that it looks for it."""
    found = set()
    for groups in (FULL, BESIDE_WINDOW):
        plan = ConnectorPlan(engine_of(groups), (SubmitRequest(0, 1),))
        one = side_plans.driven(Play("", "mooncake", plan))
        found.add(tuple(each.signature for each in one.breaks))
        assert all(each.drained for each in one.breaks), "the drain shows it"
        assert [one.course.stands, {each.status for each in one.course.left}] == [(), {"WAITING"}]
    [signatures] = found
    assert {each.check for each in signatures} == {"statistics_count_once"}


def test_a_break_says_whose_kv_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of another adapter (vllm#44250, which is open), or of another rank."""
    prompt, adapted = SubmitRequest(0, 17), SubmitRequest(0, 17, beside="lora")
    plan = ConnectorPlan(engine_of(), (prompt, Drain(), ResetCache(), adapted, Drain()))
    breaks = side_plans.driven(Play("", "lmcache", plan)).breaks
    assert {each.signature.feature for each in breaks} == {"another adapter's KV of full of full"}
    mistake = PLANTED["states of several ranks have one key (vllm#49499)"]
    mistake.patch(monkeypatch)
    assert mixed_up(mistake.shown_by().findings[0]) == "another rank's KV"


@pytest.mark.parametrize(
    ("kind", "promise"),
    [("LoadIsReportedTwice", "reports_are_of_known_transfers"), ("DiesAtShutdown", "")],
)
def test_a_death_says_which_promise_the_connector_broke(kind: str, promise: str) -> None:
    """What the scheduler dies of is another defect where the connector kept all promises."""
    plan = ConnectorPlan(engine_of(), (*AGAIN, Drain()))
    play = Play("", "ours", plan)
    [found] = KitSide(f"tests.connectors.mistakes:{kind}").drive([play])
    deaths = [each for each in found.breaks if each.death]
    assert [(each.promise, each.key.promise) for each in deaths] == [(promise, promise)]
