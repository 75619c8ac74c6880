"""A connector is called as by vLLM's first model runner, or as by the second."""

import gc
import sys

import pytest

pytest.importorskip("vllm")

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.worker.kv_connector_model_runner_mixin import KVConnectorModelRunnerMixin
from vllm.v1.worker.utils import AttentionGroup

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


def test_a_forward_pass_that_fails_leaves_no_step_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(ExampleConnector, "save_kv_layer", fails)
    later: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", later.append)
    [finding] = one("example", 0).findings
    assert "no room" in str(finding.reasons)
    gc.collect()
    assert not later


def test_all_layers_lie_in_a_block_where_vllm_has_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in older releases: vLLM allocates one tensor, and the connector gets it."""
    connector, given = OffloadingConnector, []

    def one_group(groups: list[list[AttentionGroup]]) -> bool:
        return len(groups) == len(groups[0]) == 1

    def allocate(
        config: KVCacheConfig, groups: list[list[AttentionGroup]], *_: object
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor, object]:
        [[attention]] = groups
        spec, names = attention.kv_cache_spec, attention.layer_names
        page = spec.page_size_bytes // 4
        whole = torch.zeros(config.num_blocks, len(names), page)
        shape = -1, spec.num_kv_heads, spec.block_size, page // spec.num_kv_heads // spec.block_size
        named = {name: whole[:, at].view(shape) for at, name in enumerate(names)}
        given.append(named)
        return named, whole, attention.backend

    def register(self: OffloadingConnector, whole: torch.Tensor, _backend: object) -> None:
        [named] = given
        assert {each.untyped_storage().data_ptr() for each in named.values()} == {whole.data_ptr()}
        self.register_kv_caches(named)

    mixin = KVConnectorModelRunnerMixin
    monkeypatch.setattr(mixin, "use_uniform_kv_cache", staticmethod(one_group), raising=False)
    monkeypatch.setattr(mixin, "allocate_uniform_kv_caches", staticmethod(allocate), raising=False)
    monkeypatch.setattr(connector, "register_cross_layers_kv_cache", register, raising=False)
    found = one("offloading", 0)
    assert not found.findings
    assert found.judged["promised tokens"]
    assert found.judged["workers with all layers in a block"]
