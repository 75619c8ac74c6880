"""Live vLLM serves sessions beside other features, and satisfies the spec."""

from typing import Any

import pytest
from msgspec.structs import replace

from kvproof.model.config import Cluster, EngineConfig, Group
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.verdict import Verdict
from tests.watching import watched

pytestmark = pytest.mark.live

ENGINE = EngineConfig("E", (Group("full", 2), Group("mamba", 2)), 10, max_requests=2)
BESIDE: dict[str, dict[str, Any]] = {
    "priority": {"policy": "priority"},
    "events": {"kv_events": True},
    "store": {"store": True, "steps_in_flight": 2},
    "drafts": {"drafts": 2, "steps_in_flight": 2, "groups": (Group("full", 2),)},
}


@pytest.mark.parametrize("feature", BESIDE)
def test_sessions_satisfy_the_spec_beside(feature: str) -> None:
    engine = replace(ENGINE, **BESIDE[feature])
    cluster = Cluster(feature, (engine,), aborts=True, sessions=True)
    outcome = sample(cluster, watched, seed=7, examples=10, steps=40)
    assert outcome.verdict is Verdict.SAMPLED, outcome.reason or outcome.finding
    assert outcome.coverage["events"]["Continue"] > 0
