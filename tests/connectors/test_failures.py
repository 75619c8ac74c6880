"""What fails: calls of a store or of a network, and loads, before they end, or none at all."""

from collections import Counter
from typing import Any, get_args

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorTransferResults

from kvproof.gate.connectors.search import PlanSearch
from kvproof.gate.connectors.shown import shown
from kvproof.live.connectors.episode import EpisodeResult, play
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.live.connectors.subject import TestedConnector
from kvproof.live.fakes.store_client import ASKED, FAILED
from kvproof.model.plans.connector import (
    Call,
    ConnectorPlan,
    Drain,
    Fail,
    Forget,
    Restart,
    RunSteps,
    SubmitRequest,
)
from tests.connectors.played import AGAIN, engine_of, played, rules
from tests.connectors.store import LaterStore

# Calls


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


def test_one_block_fails_alone() -> None:
    """What a store says of each block is told apart: of three, one is not loaded."""
    for call, count in ("look-up", 0), ("put", 0), ("get", 1):
        result = loaded_while(STORE, call, 1, 1)
        assert result.findings == ()
        assert result.judged["offers"] == 1
        assert result.judged["blocks that were not loaded"] == count
        tokens = result.judged["promised tokens"]
        assert tokens == (0 if call == "get" else 2 * 4)  # none is loaded behind the block


def test_a_failure_that_did_not_happen_is_told() -> None:
    plan = ConnectorPlan(engine_of(), (SubmitRequest(0, 14), RunSteps(), Fail(5, call="get")))
    result = played("mooncake-store", *plan.actions)
    found = PlanSearch(episodes=1, judged=Counter(result.judged))
    text = "\n".join(shown(SHIPPED["mooncake-store"].subject, found))
    assert "5 of the next gets were asked to fail, and 0 did." in text
    assert "Of 1 requests, 0 were offered tokens and 0 loaded" in text


# Reports of loads


class FailsFirst(LaterStore):
    """Its first load fails; the failure is reported a step before the end, and no block is written.
    Each later load writes nothing either, if `never`. `stray` is a request whose failure it reports
    though it has never had it."""

    never = False
    stray = ""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self.held: set[str] = set()
        self.failed = 0

    def start_load_kv(self, forward_context: Any, **more: Any) -> None:
        if self._connector_metadata.loads and (self.never or not self.failed):
            self.loaded.update(self._connector_metadata.loads)
        else:
            super().start_load_kv(forward_context, **more)

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
        sent, loaded = self.get_finished(finished_req_ids)
        results = KVConnectorTransferResults(set(sent or ()), set(loaded or ()) | self.held)
        self.held = set()
        if self.stray:
            results.failed_recving, self.stray = {self.stray}, ""
        elif loaded and not self.failed:
            self.failed, self.held = 1, set(loaded)
            results.finished_recving -= self.held
            results.failed_recving = set(self.held)
        return results


class NeverWrites(FailsFirst):
    """The load after the one that failed is reported as made."""

    never = True


class FailsNothing(FailsFirst):
    """It reports the failure of a request that it has never had."""

    stray = "r9"


@pytest.mark.parametrize(
    ("kind", "breaks"),
    [
        (FailsFirst, set()),
        (NeverWrites, {"promised_tokens_are_loaded"}),
        (FailsNothing, {"reports_are_of_known_transfers"}),
    ],
)
def test_a_failure_may_be_reported_before_its_load_ends_and_hides_nothing(
    kind: type, breaks: set[str]
) -> None:
    subject = TestedConnector(f"{__name__}:{kind.__name__}", forgets=True)
    actions = FIRST, DRAINED, FORGOTTEN, Forget(), SECOND, Drain()
    result = play(subject, ConnectorPlan(engine_of(), actions, load_failure="recompute"))
    assert rules(result) >= breaks
    if not breaks:
        assert result.findings == ()
        assert result.judged["loads"] == 2


def test_of_files_that_are_read_together_one_may_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.kv_offload.tiering.manager import TieringOffloadingManager

    end, loaded = TieringOffloadingManager._complete_promotion, []

    def ended(manager: Any, job: Any, result: Any) -> None:
        loaded.append(None if result.success else len(result.successful_keys or ()))
        end(manager, job, result)

    monkeypatch.setattr(TieringOffloadingManager, "_complete_promotion", ended)
    asked = FIRST, Drain()
    again = *asked, Restart(), Fail(), *asked, Restart(), *asked
    assert played("offloading-files", *again).findings == ()
    assert loaded[0] == 1
    assert None in loaded[1:]
