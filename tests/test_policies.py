"""What vLLM is free to choose is open: a vLLM that chooses otherwise stays green, and its policy is
reported as another one."""

import functools
from collections import Counter

import pytest

from kvproof.invariants.registry import CHECKS
from kvproof.model.config import Cluster
from kvproof.model.needs import Need
from kvproof.model.presets import CLUSTERS
from kvproof.strategies.conformance.watched import Watched
from kvproof.strategies.sampling.stateful import sample
from kvproof.strategies.verdict import Outcome, Verdict
from tests.cover import others_nightly
from tests.policies import POLICIES, ROOMY
from tests.watching import watched

pytestmark = pytest.mark.live

EXAMPLES = 24


def driven(name: str) -> tuple[Outcome, Counter[str]]:
    """A search on live vLLM, and the steps in which it chose otherwise than the reference."""
    policy: Counter[str] = Counter()

    def make(cluster: Cluster) -> Watched:
        return watched(cluster, policy=policy)

    cluster = (dict(CLUSTERS) | ROOMY)[name]
    # Another order of reuse is permitted; two invariants report that it loses performance.
    asked = [each for each in CHECKS.values() if Need.REUSE_ORDER not in each.needs]
    return sample(cluster, make, asked, examples=EXAMPLES, steps=30, shrink=False), policy


@functools.cache
def released(name: str) -> Counter[str]:
    """How vLLM as it was released differs, and is green."""
    outcome, policy = driven(name)
    assert outcome.verdict is Verdict.SAMPLED, outcome.finding
    return policy


@pytest.mark.parametrize("name", others_nightly(POLICIES, ["last_come_first_served"]))
def test_another_policy_is_green_and_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, kind = POLICIES[name], POLICIES[name].differs
    as_released = sum(released(cluster)[kind] for cluster in policy.clusters)
    policy.patch(monkeypatch)
    found = 0
    for cluster in policy.clusters:
        outcome, differs = driven(cluster)
        assert outcome.verdict is Verdict.SAMPLED, (cluster, outcome.finding)
        found += differs[kind]
    assert found > as_released
