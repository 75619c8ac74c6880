"""An engine without a prefix cache of its own: what is not computed comes from the connector."""

import pytest

pytest.importorskip("vllm")

from kvproof.connectors.episode import play
from kvproof.connectors.plan import ConnectorPlan, Drain, SubmitRequest, lines
from kvproof.connectors.shipped import MOONCAKE, NIXL, OFFLOADING, PUSH, SIMPLE_ROOMY
from kvproof.connectors.subject import TestedConnector
from kvproof.model.config import EngineConfig, Group

pytestmark = pytest.mark.live

GROUPS = ((Group("full", 4),), (Group("full", 4), Group("window", 4, window=8)))
TWICE = (SubmitRequest(0, 14), Drain(), SubmitRequest(0, 14))


@pytest.mark.parametrize("subject", [OFFLOADING, MOONCAKE, NIXL, PUSH])
@pytest.mark.parametrize("groups", GROUPS, ids=len)
def test_all_comes_from_the_connector(subject: TestedConnector, groups: tuple[Group, ...]) -> None:
    """With a prefix cache, it has the second prompt itself."""
    promised = {}
    for caching in (True, False):
        engine = EngineConfig("E", groups, num_blocks=64, chunk_tokens=64, prefix_caching=caching)
        found = play(subject, ConnectorPlan(engine, TWICE))
        assert not found.findings
        promised[caching] = found.judged["promised tokens"]
        assert ("no prefix cache" in lines(ConnectorPlan(engine, TWICE))[0]) is not caching
    assert promised[False] > promised[True]


def test_a_connector_may_store_nothing_then() -> None:
    """vLLM's connector for CPU memory says in the log that it is off."""
    engine = EngineConfig("E", GROUPS[0], num_blocks=64, chunk_tokens=64, prefix_caching=False)
    found = play(SIMPLE_ROOMY, ConnectorPlan(engine, TWICE))
    assert not found.findings
    assert not found.judged["promised tokens"]
