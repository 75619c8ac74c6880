"""Layers of one group that keep unequal amounts of a token (`UniformTypeKVCacheSpecs`)."""

from typing import Any

import pytest

pytest.importorskip("vllm")

from kvproof.connectors.episode import play
from kvproof.connectors.plan import ConnectorPlan, Drain, ResetCache, SubmitRequest, lines
from kvproof.connectors.shipped import MOONCAKE, NIXL, OFFLOADING, PUSH, SIMPLE
from kvproof.connectors.subject import TestedConnector
from kvproof.model.config import EngineConfig, Group

pytestmark = pytest.mark.live

GROUPS = ((Group("full", 4),), (Group("full", 4), Group("window", 4, window=8)))
TWICE = (SubmitRequest(0, 14), Drain(), ResetCache(), SubmitRequest(0, 14))


def episode(groups: tuple[Group, ...], latent: bool = False) -> ConnectorPlan:
    engine = EngineConfig("E", groups, num_blocks=64, chunk_tokens=64)
    return ConnectorPlan(engine, TWICE, latent=latent, uneven=True)


@pytest.mark.parametrize("subject", [OFFLOADING, SIMPLE, MOONCAKE, NIXL, PUSH])
@pytest.mark.parametrize("groups", GROUPS, ids=len)
@pytest.mark.parametrize("latent", [False, True])
def test_they_are_stored_and_loaded(
    subject: TestedConnector, groups: tuple[Group, ...], latent: bool
) -> None:
    plan = episode(groups, latent)
    found = play(subject, plan)
    assert not found.findings
    assert found.judged["promised tokens"]
    assert "twice as wide" in lines(plan)[0]


def test_copies_as_wide_as_the_first_layer_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import (
        OffloadingConnectorWorker as Worker,
    )

    register = Worker.register_kv_caches

    def narrow(self: Any, kv_caches: Any) -> Any:
        [group] = self.kv_cache_config.kv_cache_groups
        specs = group.kv_cache_spec.kv_cache_specs
        specs.update(dict.fromkeys(specs, next(iter(specs.values()))))
        return register(self, kv_caches)

    monkeypatch.setattr(Worker, "register_kv_caches", narrow)
    found = play(OFFLOADING, episode(GROUPS[0]))
    assert "promised_tokens_are_loaded" in {finding.invariant for finding in found.findings}
