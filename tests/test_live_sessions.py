"""Live vLLM serves sessions beside other features, and the model beside it follows."""

import dataclasses
from typing import Any

import pytest

from kvproof.model.config import Cluster, Engine, Group
from kvproof.strategies.refinement import Shadowed
from kvproof.strategies.stateful import sample
from kvproof.strategies.verdict import Verdict

pytestmark = pytest.mark.live

ENGINE = Engine("E", (Group("full", 2), Group("mamba", 2)), 10, max_requests=2)
BESIDE: dict[str, dict[str, Any]] = {
    "priority": {"policy": "priority"},
    "events": {"kv_events": True},
    "store": {"store": True, "steps_in_flight": 2},
    "drafts": {"drafts": 2, "steps_in_flight": 2, "groups": (Group("full", 2),)},
}


@pytest.mark.parametrize("feature", BESIDE)
def test_the_model_follows_sessions_beside(feature: str) -> None:
    from kvproof.live import availability
    from kvproof.live.deviations import deviations
    from kvproof.live.machine import LiveMachine

    known = deviations(availability.installed())
    engine = dataclasses.replace(ENGINE, **BESIDE[feature])
    cluster = Cluster(feature, (engine,), aborts=True, sessions=True)
    outcome = sample(
        lambda c: Shadowed(LiveMachine(c), known), cluster, seed=7, examples=10, steps=40
    )
    assert outcome.verdict is Verdict.SAMPLED, outcome.reason or outcome.finding
