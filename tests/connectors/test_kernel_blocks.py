"""Kernels with blocks of their own, some to an attention block of the engine: connectors get views
in these (`--block-size` above what the attention backend takes)."""

from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm.distributed.kv_transfer.kv_connector.v1.nixl.base_worker import NixlBaseConnectorWorker
from vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector import (
    SimpleCPUOffloadConnector,
)

from kvproof.connectors.drawn import ALONE, HYBRID
from kvproof.connectors.episode import EpisodeResult, play
from kvproof.connectors.plan import ConnectorPlan, Drain, ResetCache, SubmitRequest
from kvproof.connectors.shipped import SHIPPED
from kvproof.model.config import EngineConfig

pytestmark = pytest.mark.live

ONE, *SEVERAL = (each for each in HYBRID if each.kernel_blocks > 1)
PROMPTS = SubmitRequest(0, 14, 3), SubmitRequest(0, 10, 3)


def played(name: str, layers: ConnectorPlan = ONE, **more: Any) -> EpisodeResult:
    engine = EngineConfig("E", layers.engine.groups, num_blocks=48, chunk_tokens=64)
    actions = (*PROMPTS, Drain(), ResetCache(), *PROMPTS)
    plan = ConnectorPlan(engine, actions, kernel_blocks=layers.kernel_blocks, **more)
    return play(SHIPPED[name].subject, plan)


@pytest.mark.parametrize("first_runner", [False, True])
@pytest.mark.parametrize("name", ["offloading", "simple-cpu", "mooncake-store", "nixl-pull"])
def test_what_was_stored_is_loaded(name: str, first_runner: bool) -> None:
    result = played(name, first_runner=first_runner)
    assert not result.findings
    assert result.judged["promised tokens"]


@pytest.mark.parametrize("layers", SEVERAL, ids=[each.kinds for each in SEVERAL])
@pytest.mark.parametrize("name", ["offloading", "nixl-push"])
def test_a_connector_may_keep_the_layers_of_several_groups_apart(
    name: str, layers: ConnectorPlan
) -> None:
    result = played(name, layers)
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
    played("simple-cpu")
    assert got == [48 * ONE.kernel_blocks] * 2


def test_half_of_a_block_that_is_copied_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_half(_: Any, groups: Any, ratio: int) -> Any:
        return [[block * ratio for block in each for _ in range(ratio)] for each in groups]

    monkeypatch.setattr(NixlBaseConnectorWorker, "_logical_to_kernel_block_ids", first_half)
    assert played("nixl-pull").findings[0].invariant == "promised_tokens_are_loaded"
