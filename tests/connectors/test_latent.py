"""Latent attention: a layer has one head, which each rank has, also of P and D."""

import pytest

pytest.importorskip("vllm")

from kvproof.connectors.drawn import unequal
from kvproof.connectors.episode import play
from kvproof.connectors.plan import ConnectorPlan, Drain, ResetCache, SubmitRequest, lines
from kvproof.connectors.search import bare
from kvproof.connectors.shipped import MOONCAKE, NIXL, OFFLOADING, PUSH, SIMPLE
from kvproof.connectors.subject import TestedConnector
from kvproof.live.build import ServedModel
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
    assert not found.findings and found.judged["promised tokens"]
    assert "latent" in lines(plan)[0]


@pytest.mark.parametrize("layers", [e for e in unequal(NIXL.unequal) if e.latent], ids=str)
def test_unequal_ranks_read_it(layers: object) -> None:
    plan = ConnectorPlan(**{f: getattr(bare(layers), f) for f in ConnectorPlan.__struct_fields__})
    assert plan.latent and ServedModel(latent=True).heads == 1
    found = play(
        NIXL,
        ConnectorPlan(
            plan.engine,
            TWICE,
            latent=True,
            ranks=plan.ranks,
            tensor=True,
            prefill_ranks=plan.prefill_ranks,
        ),
    )
    assert not found.findings and found.judged["promised tokens"]
