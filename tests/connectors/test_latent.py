"""Latent attention: a layer has one head, which each rank has, also of P and D."""

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


@pytest.mark.parametrize("subject", [OFFLOADING, SIMPLE, MOONCAKE, NIXL, PUSH])
@pytest.mark.parametrize("groups", GROUPS, ids=len)
def test_it_is_stored_and_loaded(subject: TestedConnector, groups: tuple[Group, ...]) -> None:
    engine = EngineConfig("E", groups, num_blocks=64, chunk_tokens=64)
    plan = ConnectorPlan(engine, TWICE, latent=True)
    found = play(subject, plan)
    assert not found.findings
    assert found.judged["promised tokens"]
    assert "latent" in lines(plan)[0]


@pytest.mark.parametrize(("prefill", "decode"), NIXL.unequal)
def test_unequal_ranks_read_it(prefill: int, decode: int) -> None:
    engine = EngineConfig("E", GROUPS[0], num_blocks=64, chunk_tokens=64)
    ranks = {"ranks": decode, "tensor": True, "prefill_ranks": prefill}
    found = play(NIXL, ConnectorPlan(engine, TWICE, latent=True, **ranks))
    assert not found.findings
    assert found.judged["promised tokens"]
