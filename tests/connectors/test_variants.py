"""What was stored is loaded, in each variant of an engine: its layers, its kernels, the runner that
calls its connector, and whether it has a prefix cache."""

import gc
import sys
from typing import Any, NamedTuple

import pytest
import torch
from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector import (
    SimpleCPUOffloadConnector,
)
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.worker.kv_connector_model_runner_mixin import KVConnectorModelRunnerMixin
from vllm.v1.worker.utils import AttentionGroup

from kvproof.live.connectors.drawn import ALONE, HYBRID
from kvproof.live.connectors.episode import EpisodeResult
from kvproof.live.connectors.shipped import SHIPPED
from kvproof.model.plans.connector import ConnectorPlan, Drain, ResetCache, SubmitRequest
from tests.connectors.played import (
    AGAIN,
    BESIDE_WINDOW,
    FULL,
    NIXL,
    PROMPTS,
    between_ranks,
    engine_of,
    played,
)

GROUPS = [FULL, BESIDE_WINDOW]
STORES = ("offloading", "simple-cpu", "mooncake-store")


class Variant(NamedTuple):
    """A variant of a plan, and what a reader sees of it."""

    plan: dict[str, Any]
    drafts: int = 0


LAYERS = {
    "latent": Variant({"latent": True}),
    "unequal": Variant({"uneven": True}),
    "unequal latent": Variant({"uneven": True, "latent": True}),
}
RUNNERS = {
    "first runner": Variant({"first_runner": True}),
    "with drafts": Variant({"first_runner": True}, drafts=2),
}
"""A connector is called as by vLLM's first model runner."""

CASES = [
    *(
        (name, groups, v)
        for v in LAYERS
        for name in (*STORES, *NIXL)
        for groups in (FULL, BESIDE_WINDOW)
    ),
    *((name, FULL, v) for v in RUNNERS for name in ("example", *STORES, *NIXL)),
]


@pytest.mark.parametrize(("name", "groups", "variant"), CASES)
def test_what_was_stored_is_loaded(name: str, groups: Any, variant: str) -> None:
    plan, drafts = (LAYERS | RUNNERS)[variant]
    engine = engine_of(groups, 64, drafts=drafts)
    found = played(name, *AGAIN, engine=engine, **plan)
    assert not found.findings
    assert found.judged["promised tokens"]


@pytest.mark.parametrize("ranks", SHIPPED["nixl-pull"].subject.unequal)
def test_unequal_ranks_read_a_latent_layer(ranks: tuple[int, int]) -> None:
    """A layer has one head, which each rank of P and D has."""
    found = played(
        "nixl-pull", *AGAIN, engine=engine_of(num_blocks=64), latent=True, **between_ranks(*ranks)
    )
    assert not found.findings
    assert found.judged["promised tokens"]


@pytest.mark.parametrize("name", ["offloading", "mooncake-store", *NIXL])
@pytest.mark.parametrize("groups", GROUPS, ids=len)
def test_without_a_prefix_cache_all_comes_from_the_connector(name: str, groups: Any) -> None:
    """With one, it has the second prompt itself."""
    twice = (SubmitRequest(0, 14), Drain(), SubmitRequest(0, 14))
    promised = {}
    for caching in (True, False):
        engine = engine_of(groups, 64, prefix_caching=caching)
        found = played(name, *twice, engine=engine)
        assert not found.findings
        promised[caching] = found.judged["promised tokens"]
    assert promised[False] > promised[True]


def test_a_connector_may_store_nothing_then() -> None:
    """vLLM's connector for CPU memory says in the log that it is off."""
    found = played(
        "simple-cpu-roomy", *AGAIN, engine=engine_of(num_blocks=64, prefix_caching=False)
    )
    assert not found.findings
    assert not found.judged["promised tokens"]


ONE, *SEVERAL = (each for each in HYBRID if each.kernel_blocks > 1)
"""Kernels have blocks of their own, some to an attention block of the engine: connectors get views
in these (`--block-size` above what the attention backend takes)."""


def in_kernel_blocks(name: str, layers: ConnectorPlan = ONE, **more: Any) -> EpisodeResult:
    actions = (*PROMPTS, Drain(), ResetCache(), *PROMPTS)
    engine = engine_of(layers.engine.groups, 48)
    return played(name, *actions, engine=engine, kernel_blocks=layers.kernel_blocks, **more)


@pytest.mark.parametrize(
    ("name", "layers", "first_runner"),
    [
        *((name, ONE, first) for name in (*STORES, "nixl-pull") for first in (False, True)),
        *((name, each, False) for name in ("offloading", "nixl-push") for each in SEVERAL),
    ],
)
def test_blocks_of_kernels_are_loaded(name: str, layers: ConnectorPlan, first_runner: bool) -> None:
    """A connector may keep the layers of several groups apart."""
    result = in_kernel_blocks(name, layers, first_runner=first_runner)
    assert not result.findings
    assert result.judged["promised tokens"]


def test_connectors_get_the_blocks_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ONE in ALONE
    got: list[int] = []
    register: Any = SimpleCPUOffloadConnector.register_kv_caches

    def registered(self: Any, caches: dict[str, Any]) -> None:
        got.extend(len(each) for each in caches.values())
        register(self, caches)

    monkeypatch.setattr(SimpleCPUOffloadConnector, "register_kv_caches", registered)
    in_kernel_blocks("simple-cpu")
    assert got == [48 * ONE.kernel_blocks] * 2


def by_first_runner(name: str, drafts: int) -> EpisodeResult:
    return played(name, *AGAIN, engine=engine_of(num_blocks=64, drafts=drafts), first_runner=True)


def test_saves_that_nobody_waits_for_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KVConnectorModelRunnerMixin, "finalize_kv_connector", lambda: None)
    assert by_first_runner("mooncake-store", 2).findings
    assert not by_first_runner("mooncake-store", 0).findings


def test_a_forward_pass_that_fails_leaves_no_step_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(ExampleConnector, "save_kv_layer", fails)
    later: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", later.append)
    [finding] = by_first_runner("example", 0).findings
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
    found = by_first_runner("offloading", 0)
    assert not found.findings
    assert found.judged["promised tokens"]
    assert found.judged["workers with all layers in a block"]
