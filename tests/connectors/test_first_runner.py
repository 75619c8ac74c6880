"""A connector is called as by vLLM's first model runner, or as by the second."""

import pytest

pytest.importorskip("vllm")

from vllm.v1.worker.kv_connector_model_runner_mixin import KVConnectorModelRunnerMixin

from kvproof.connectors.episode import EpisodeResult, play
from kvproof.connectors.plan import ConnectorPlan, Drain, ResetCache, SubmitRequest, lines
from kvproof.connectors.shipped import SHIPPED
from kvproof.model.config import EngineConfig, Group

pytestmark = pytest.mark.live

NAMES = ("example", "offloading", "simple-cpu", "mooncake-store", "nixl-pull", "nixl-push")
TWICE = (SubmitRequest(0, 14), Drain(), ResetCache(), SubmitRequest(0, 14))


def one(name: str, drafts: int) -> EpisodeResult:
    engine = EngineConfig("E", (Group("full", 4),), 64, chunk_tokens=64, drafts=drafts)
    plan = ConnectorPlan(engine, TWICE, first_runner=True)
    assert "called by the first model runner" in lines(plan)[0]
    return play(SHIPPED[name].subject, plan)


@pytest.mark.parametrize("drafts", [0, 2])
@pytest.mark.parametrize("name", NAMES)
def test_what_was_stored_is_loaded(name: str, drafts: int) -> None:
    found = one(name, drafts)
    assert not found.findings
    assert found.judged["promised tokens"]


def test_saves_that_nobody_waits_for_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KVConnectorModelRunnerMixin, "finalize_kv_connector", lambda: None)
    assert one("mooncake-store", 2).findings
    assert not one("mooncake-store", 0).findings
