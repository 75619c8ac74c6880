"""When a worker reports that a load has failed: before its end, with it, or for no load at all."""

from typing import Any

import pytest
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorTransferResults

from kvproof.live.connectors.episode import EpisodeResult, play
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.live.connectors.subject import TestedConnector
from kvproof.model.config import EngineConfig, Group
from kvproof.model.plans.connector import (
    ConnectorPlan,
    Drain,
    Fail,
    Forget,
    ResetCache,
    Restart,
    SubmitRequest,
)
from tests.connectors.store import LaterStore

ENGINE = EngineConfig("E", (Group("full", 4),), num_blocks=24, chunk_tokens=64)
AGAIN = SubmitRequest(0, 14), Drain(), ResetCache(), Forget(), SubmitRequest(0, 14), Drain()


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


def played(kind: type) -> EpisodeResult:
    subject = TestedConnector(f"{__name__}:{kind.__name__}", forgets=True)
    return play(subject, ConnectorPlan(ENGINE, AGAIN, load_failure="recompute"))


def rules(kind: type) -> set[str]:
    return {finding.invariant for finding in played(kind).findings}


def test_a_failure_may_be_reported_before_the_end_of_its_load() -> None:
    result = played(FailsFirst)
    assert result.findings == ()
    assert result.judged["loads"] == 2


def test_a_failure_hides_no_later_load() -> None:
    assert "promised_tokens_are_loaded" in rules(NeverWrites)


def test_a_failure_of_no_load_is_named() -> None:
    assert "reports_are_of_known_transfers" in rules(FailsNothing)


def test_of_files_that_are_read_together_one_may_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.kv_offload.tiering.manager import TieringOffloadingManager

    end, loaded = TieringOffloadingManager._complete_promotion, []

    def ended(manager: Any, job: Any, result: Any) -> None:
        loaded.append(None if result.success else len(result.successful_keys or ()))
        end(manager, job, result)

    monkeypatch.setattr(TieringOffloadingManager, "_complete_promotion", ended)
    asked = SubmitRequest(0, 14), Drain()
    plan = ConnectorPlan(ENGINE, (*asked, Restart(), Fail(), *asked, Restart(), *asked))
    assert play(SHIPPED["offloading-files"].subject, plan).findings == ()
    assert loaded[0] == 1
    assert None in loaded[1:]
